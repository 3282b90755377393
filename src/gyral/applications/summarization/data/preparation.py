"""Preparation of a corpus of articles with summaries: parallel tokenization, one word list, memory-mapped files.

This module does not import torch, because many worker processes import it.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gyral.applications.summarization.data.parsing import SPECIAL, STOP, Fields
from gyral.applications.summarization.data.sources import ArticleSource, parse_examples
from gyral.data import preparation
from gyral.data.preparation import Part, read_part, save_part, total
from gyral.data.raw_examples import RawExample, Report


def prepare(name: str, sources: Mapping[str, ArticleSource], target: Path, processes: int | None) -> None:
    """Tokenize the sources and write a corpus; see `gyral.data.preparation.prepare`."""
    preparation.prepare(
        name,
        sources,
        target,
        processes,
        write=write_part,
        join=_join,
        special=SPECIAL,
        example="pair of an article and a summary",
        unit="pairs",
    )


def write_part(path: Path, examples: list[RawExample], form: str, mode: str, fields: Fields) -> None:
    """Encode examples into a file, which is written completely or not at all.

    The arrays of the part are `tokens`, for each of p pairs the article and then the summary with `STOP` after each
    sentence, and `bounds`, (2p,) the end of each article and each summary in `tokens`.

    Raises:
        OSError: the file cannot be written.
    """
    report = Report()
    index = {STOP: 0}
    tokens: list[int] = []
    bounds: list[int] = []
    for pair in parse_examples(examples, form, mode, fields, report):
        tokens += [index.setdefault(word, len(index)) for word in pair.article]
        bounds.append(len(tokens))
        for sentence in pair.sentences:
            tokens += [index.setdefault(word, len(index)) for word in sentence]
            tokens.append(0)
        bounds.append(len(tokens))
    numbers = np.array(tokens, dtype=np.uint32)
    arrays: dict[str, np.ndarray] = {"tokens": numbers, "bounds": np.array(bounds, dtype=np.int64)}
    save_part(path, Part(list(index), np.bincount(numbers, minlength=len(index)), arrays, report))


def _join(folder: Path, parts: dict[str, list[Path]], index: dict[str, int]) -> dict[str, Report]:
    """Write the files of a corpus, in which words have the numbers of `index`, and return the report on each split."""
    reports, end = {}, 0
    with (folder / "tokens.bin").open("wb") as file:
        for split, paths in parts.items():
            bounds, found = [np.array([end])], []
            for path in paths:
                part = read_part(path)
                numbers = np.array([index[word] for word in part.words], dtype=np.uint32)
                tokens = numbers[part.arrays["tokens"]]
                file.write(tokens.data)
                bounds.append(part.arrays["bounds"] + end)
                end += len(tokens)
                found.append(part.report)
            np.save(folder / f"{split}.npy", np.concatenate(bounds))
            reports[split] = total(found)
    return reports
