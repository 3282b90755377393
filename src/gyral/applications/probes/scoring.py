"""Log-probabilities of many short sentences under a language model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from gyral.nn.recurrent import reorder

NUMBERS = 2**25  # number of logits or state values at once
MAX_ROWS = 1024
END = -1  # after the tokens of a sentence


@torch.inference_mode()
def log_probabilities(model: nn.Module, sentences: Sequence[Sequence[int]], *, rows: int = 0) -> np.ndarray:
    """Return the log-probability of each sentence: the sum over all tokens but the first, given the tokens before.

    Sentences are sorted, and common prefixes are computed once. Equal sentences have exactly equal values.

    Args:
        model: called like `gyral.models.sequence.SequenceModel`, in eval mode.
        sentences: the tokens of each sentence, at least one.
        rows: number of different sentences at once; 0: chosen for a moderate amount of memory.

    Returns:
        (number of sentences,) in nats, float64.
    """
    distinct = sorted({tuple(sentence) for sentence in sentences})
    rows = rows or _rows(model)
    values: dict[tuple[int, ...], float] = {}
    for start in range(0, len(distinct), rows):
        chunk = distinct[start : start + rows]
        values.update(zip(chunk, _score(model, chunk), strict=True))
    return np.array([values[tuple(sentence)] for sentence in sentences])


def _rows(model: nn.Module) -> int:
    """Return the number of rows whose logits and states have about `NUMBERS` values."""
    state_size: Any = model.state_size
    vocabulary_size: Any = model.vocabulary_size
    return min(max(NUMBERS // max(state_size(), vocabulary_size), 1), MAX_ROWS)


def _score(model: nn.Module, sentences: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Return the log-probabilities of sorted, different sentences; column by column, each prefix once."""
    device = next(model.parameters()).device
    longest = max(map(len, sentences))
    tokens = np.full((len(sentences), longest), END)
    for row, sentence in enumerate(sentences):
        tokens[row, : len(sentence)] = sentence
    starts = np.ones_like(tokens, dtype=bool)  # whether a row differs from the previous row up to this column
    starts[1:] = np.logical_or.accumulate(tokens[1:] != tokens[:-1], axis=1)
    values = np.zeros(len(sentences))
    state, parents = None, np.zeros(len(sentences), dtype=int)
    for column in range(longest - 1):
        goes_on = tokens[:, column + 1] != END
        # rows that share a prefix are neighbors; sentences that end here are no longer needed
        rows = np.flatnonzero(goes_on)
        first = _first_rows(starts[:, column], rows)
        prefix = np.cumsum(first) - 1  # index of the prefix of each row
        read = rows[first]
        if state is not None:
            state = reorder(state, torch.from_numpy(parents[read]).to(device))
        logits, state = model(torch.from_numpy(tokens[read, column]).unsqueeze(1).to(device), state)
        logits = logits[:, 0]
        target = torch.from_numpy(tokens[rows, column + 1]).to(device)
        source = torch.from_numpy(prefix).to(device)
        chosen = logits[source, target] - logits.logsumexp(dim=-1)[source]
        values[rows] += chosen.double().cpu().numpy()
        parents[rows] = prefix
    return values


def _first_rows(starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return a mask of the rows that are the first of their prefix; `starts` is the mask of all rows."""
    prefix = np.cumsum(starts)[rows]
    return np.concatenate(([True], prefix[1:] != prefix[:-1]))
