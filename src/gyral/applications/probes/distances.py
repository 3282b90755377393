"""Syntactic distances between the words of a sentence, from the gates of a language model's cells."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gyral.core.errors import UserError
from gyral.data.vocabulary import END_OF_LINE, Vocabulary
from gyral.tasks.text import TextTask

BATCH = 64  # sentences
CELLS_WITH_GATES = "ONLSTMCell, LSTMCell, GRUCell, GORUCell or RUMCell"  # for errors


@torch.inference_mode()
def syntactic_distances(task: TextTask, sentences: Sequence[Sequence[str]]) -> dict[str, list[np.ndarray]]:
    """Return the distances of the words of sentences, for each layer that has a forget gate.

    The distance of word t is 1 − mean of the cell's `forget_gate` at this word: the larger, the more the cell forgets
    before it. For the master forget gate of ON-LSTM with D entries this is the published distance D − Σ_k f̃_k
    divided by D. A sentence is read after `<eos>`, from the initial state.

    Args:
        task: a trained task with a vocabulary of words.
        sentences: words; words outside the vocabulary become `<unk>`.

    Returns:
        By "layer 1", "layer 2", …: for each sentence (n,), one distance for each word.

    Raises:
        UserError: symbols are not words, the vocabulary lacks `<eos>` or a word, or no cell has a forget gate.
    """
    vocabulary = task.data.corpus.vocabulary
    if vocabulary.level != "word":
        raise UserError(f"parsing needs a vocabulary of words; this one has symbols of level {vocabulary.level}")
    if END_OF_LINE not in vocabulary.index:
        raise UserError(f"parsing needs a vocabulary with {END_OF_LINE}, before which a sentence starts")
    encoded = [_encode(vocabulary, words) for words in sentences]
    order = sorted(range(len(encoded)), key=lambda place: len(encoded[place]))
    found: dict[str, list[np.ndarray]] = {}
    task.eval()
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        tokens = torch.nn.utils.rnn.pad_sequence([encoded[place] for place in places], batch_first=True)
        for layer, values in _read(task, tokens.to(task.device)).items():
            of_layer = found.setdefault(layer, [np.empty(0)] * len(encoded))
            for row, place in enumerate(places):
                of_layer[place] = values[1 : len(encoded[place]), row]
    if not found:
        names = ", ".join(sorted({type(cell).__name__ for cell in task.model.recurrent.cells}))
        raise UserError(f"distances come from a forget gate, which {CELLS_WITH_GATES} has; this model has {names}")
    return found


def _encode(vocabulary: Vocabulary, words: Sequence[str]) -> Tensor:
    return torch.from_numpy(vocabulary.encode([END_OF_LINE, *words], "treebank").astype(np.int64))


def _read(task: TextTask, tokens: Tensor) -> dict[str, np.ndarray]:
    """Return the distances (T, B) of tokens (B, T) by layer; padding follows the sentences and does not change them."""
    found: dict[str, np.ndarray] = {}
    cells = list(task.model.recurrent.cells)
    with ExitStack() as recording:
        recorded = [recording.enter_context(cell.record_steps()) for cell in cells]
        task.model(tokens)
    for number, (cell, steps) in enumerate(zip(cells, recorded, strict=True), start=1):
        if not hasattr(cell, "forget_gate"):
            continue
        # the steps are rows of one batch
        before = [cell.init_state(tokens.shape[0]), *(step.state for step in steps[:-1])]
        gate = cell.forget_gate(_joined([step.projected for step in steps]), _joined(before))
        if gate is not None:
            found[f"layer {number}"] = (1 - gate.double().mean(dim=-1)).view(len(steps), -1).cpu().numpy()
    return found


def _joined(structures: list[Any]) -> Any:
    """Return structures of the same form as one, their tensors (B, …) as (T B, …)."""
    return tree_map(lambda *leaves: None if leaves[0] is None else torch.cat(leaves), *structures)
