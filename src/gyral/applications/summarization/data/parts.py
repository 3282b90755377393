"""Encoded parts of a corpus of articles with summaries, the unit of parallel preparation.

This module does not import torch, because many worker processes import it.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.applications.summarization.data.parsing import STOP
from gyral.applications.summarization.data.sources import parse_records
from gyral.core.files import replace_when_written
from gyral.data.records import DamagedPartError, Record, Report, restore_report


class Part(NamedTuple):
    """Encoded pairs, with a word list of their own.

    Attributes:
        words: the words of the pairs and `STOP`, all different.
        counts: (w,) how often each word occurs.
        tokens: (n,) indices into `words`: for each pair the article and then the summary, with `STOP` after each
            sentence.
        bounds: (2p,) end of each article and each summary in `tokens`.
        report: counts of kept and skipped records.
    """

    words: list[str]
    counts: np.ndarray
    tokens: np.ndarray
    bounds: np.ndarray
    report: Report


def write_part(path: Path, records: list[Record], form: str, mode: str) -> None:
    """Encode records into a file, which is written completely or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    report = Report()
    index = {STOP: 0}
    tokens: list[int] = []
    bounds: list[int] = []
    for pair in parse_records(records, form, mode, report):
        tokens += [index.setdefault(word, len(index)) for word in pair.article]
        bounds.append(len(tokens))
        for sentence in pair.sentences:
            tokens += [index.setdefault(word, len(index)) for word in sentence]
            tokens.append(0)
        bounds.append(len(tokens))
    numbers = np.array(tokens, dtype=np.uint32)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(
                file,
                words=np.frombuffer("\n".join(index).encode(), dtype=np.uint8),
                counts=np.bincount(numbers, minlength=len(index)),
                tokens=numbers,
                bounds=np.array(bounds, dtype=np.int64),
                report=np.frombuffer(json.dumps(asdict(report)).encode(), dtype=np.uint8),
            )

    replace_when_written(path, write)


def read_part(path: Path) -> Part:
    """Read a file that `write_part` wrote; it contains a checksum of each array, as every ZIP archive does.

    Raises:
        DamagedPartError: the content differs from what was written.
    """
    try:
        with path.open("rb") as file, np.load(file) as arrays:  # NumPy leaves a file open that it cannot read
            words = arrays["words"].tobytes().decode().split("\n")
            report = restore_report(json.loads(arrays["report"].tobytes()))
            return Part(words, arrays["counts"], arrays["tokens"], arrays["bounds"], report)
    except Exception as error:  # NumPy, zipfile and JSON raise many kinds
        raise DamagedPartError(f"{path}: is damaged ({error}): remove it and run the same command again") from error
