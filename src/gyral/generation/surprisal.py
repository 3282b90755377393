"""Surprisal of a text: the bits, −log2 p, of each symbol given all symbols before it."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from gyral.core.errors import OptionError
from gyral.core.inputs import decode, path_of, read_bytes
from gyral.data.vocabulary import END_OF_LINE, Symbols, Vocabulary
from gyral.generation.surprisal_view import Surprisal, print_surprisals, write_page
from gyral.generation.text import symbol_names
from gyral.models.prediction import read
from gyral.tasks.text import TextTask

LIKELIEST = 3  # number of most likely symbols of a `Surprisal`


def show_surprisal(task: TextTask, *, surprisal: str, html: str | None = None) -> Iterator[str]:
    """Yield a text whose symbols are colored by surprisal, or write it as an HTML page.

    Args:
        task: a trained task.
        surprisal: path of a file, or "-" for standard input. The text is UTF-8 unless symbols are bytes.
        html: path of the page to write.

    Raises:
        UserError: the text cannot be read, has fewer than two symbols, or has a symbol that is not in the vocabulary.
    """
    level = task.data.corpus.level
    found = surprisals(task, read_text(surprisal, task.data.corpus.vocabulary), ("surprisal", surprisal))
    if html is None:
        yield from print_surprisals(found, level)
    else:
        title = "standard input" if surprisal == "-" else Path(surprisal).name
        yield write_page(path_of(html), found, level, title)


def surprisals(task: TextTask, symbols: Symbols, source: tuple[str, str] = ("text", "")) -> Iterator[Surprisal]:
    """Yield the probability that the model gives each symbol of a text, given all symbols before it.

    The mean of −ln p equals the evaluation loss of this text in one row, where the first symbol is not predicted.

    Args:
        task: a trained task.
        symbols: the text.
        source: option that named the text, and its value, for errors.

    Raises:
        UserError: the text has fewer than two symbols, or a symbol that is not in the vocabulary.
    """
    vocabulary = task.data.corpus.vocabulary
    if len(symbols) < 2:
        raise OptionError(*source, f"has {len(symbols)} {vocabulary.level}s, and must have at least 2")
    tokens = torch.from_numpy(vocabulary.encode(symbols, "=".join(source)).astype(np.int64))
    texts = zip(symbol_names(symbols), (vocabulary.symbols[token] for token in tokens.tolist()), strict=True)
    yield Surprisal(*next(texts), None, ())
    targets = tokens[1:].split(task.data.window)
    windows = read(task.model, tokens[:-1].to(task.device), task.data.window)
    for (logits, _), target in zip(windows, targets, strict=True):
        losses = F.cross_entropy(logits, target.to(task.device), reduction="none")
        highest = logits.softmax(dim=-1).topk(min(LIKELIEST, len(vocabulary)))
        alternatives = zip(highest.values.tolist(), highest.indices.tolist(), strict=True)
        for loss, (values, indices) in zip(losses.tolist(), alternatives, strict=True):
            likeliest = tuple((vocabulary.symbols[i], value) for i, value in zip(indices, values, strict=True))
            yield Surprisal(*next(texts), loss / math.log(2), likeliest)


def read_text(name: str, vocabulary: Vocabulary) -> Symbols:
    """Return the symbols of a file, or of standard input if the name is "-".

    A line break at the end of the file, which most files have, is ignored if the vocabulary has no line break.

    Raises:
        OptionError: the file cannot be read, is empty or, unless symbols are bytes, is not UTF-8.
    """
    content = sys.stdin.buffer.read() if name == "-" else read_bytes("surprisal", name)
    try:
        text = content if vocabulary.level == "byte" else decode(content)
    except UnicodeDecodeError as error:
        raise OptionError("surprisal", name, f"is not UTF-8: {error.reason}") from None
    if not content:
        raise OptionError("surprisal", name, "is empty")
    if isinstance(text, bytes):
        return text
    line_end = END_OF_LINE if vocabulary.level == "word" else "\n"
    return vocabulary.segment(text if line_end in vocabulary.index else text.removesuffix("\n"))
