"""Predictions of a language model for texts, one on each line."""

import math
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.core.errors import OptionError
from gyral.core.inputs import read_lines, source_of
from gyral.core.measures import perplexity_of
from gyral.data.batching import IGNORED, pad_rows
from gyral.generation.text import start_token
from gyral.tasks.predicted import Tables
from gyral.tasks.text import TextTask


def predict_texts(task: TextTask, data: Any) -> Tables:
    """Texts: a text file with one on each line, or a list of texts.

    The model reads each text from an empty state. Its row has the surprisal of the text, −log2 p of all symbols but the
    first, and the likeliest next symbol. The metrics are those of all predicted symbols.

    Args:
        task: a trained task.
        data: path of a file, "-" for standard input, or the texts.

    Raises:
        OptionError: the file cannot be read or is empty.
        UserError: a text has a symbol that is not in the vocabulary.
    """
    lines = read_lines("data", data)
    vocabulary = task.data.corpus.vocabulary
    first = np.array([start_token(task.data.corpus)])  # which an empty text is read as
    row, total, count = 0, 0.0, 0
    while block := [line.rstrip("\r\n") for line in islice(lines, task.data.eval_batch_size)]:
        symbols = [vocabulary.segment(text) for text in block]
        places = (f"data={source_of(data)}, line {number}" for number in range(row + 1, row + 1 + len(block)))
        encoded = [vocabulary.encode(*each) if each[0] else first for each in zip(symbols, places, strict=True)]
        losses, last = read_texts(task, encoded)
        best = last.softmax(dim=-1).max(dim=-1)
        bits = (losses / math.log(2)).tolist()
        sizes = np.array([len(own) - 1 for own in encoded])
        total, count = total + float(losses.sum()), count + int(sizes.sum())
        yield {
            "row": range(row, row + len(block)),
            "text": block,
            "symbols": [len(own) for own in symbols],
            "bits": bits,
            "bits_per_symbol": np.divide(bits, sizes, out=np.full(len(bits), np.nan), where=sizes > 0),
            "prediction": [vocabulary.symbols[token] for token in best.indices.tolist()],
            "probability": best.values.float().cpu().numpy(),
        }
        row += len(block)
    if not row:
        raise OptionError("data", source_of(data), "is empty; must have a text on each line")
    if not count:
        return {}
    loss = total / count
    return {"loss": loss, "bits": loss / math.log(2), "perplexity": perplexity_of(loss)}


def read_texts(task: TextTask, encoded: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return the sum of the losses of each text, (B,) in nats, and the logits after its last symbol, (B, symbols).

    Args:
        task: a trained task, in eval mode.
        encoded: the tokens of B texts.
    """
    lengths = torch.tensor([len(own) for own in encoded], device=task.device)
    tokens = torch.from_numpy(pad_rows(encoded)).to(task.device)
    targets = torch.from_numpy(pad_rows([np.append(own[1:], IGNORED) for own in encoded], IGNORED)).to(task.device)
    losses, last, start, state = torch.zeros(len(encoded), dtype=torch.float64, device=task.device), None, 0, None
    for piece, target in zip(tokens.split(task.data.window, 1), targets.split(task.data.window, 1), strict=True):
        logits, state = task.model(piece, state)
        own = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="none")
        losses += own.view_as(target).sum(dim=1)
        place = (lengths - 1 - start).clamp(0, piece.shape[1] - 1)
        found = logits[torch.arange(len(encoded), device=task.device), place]
        is_here = (lengths - 1 >= start) & (lengths - 1 < start + piece.shape[1])
        last = found if last is None else torch.where(is_here[:, None], found, last)
        start += piece.shape[1]
    assert last is not None, "a text has at least one token"
    return losses, last
