"""Preparation of a corpus of articles with summaries: parallel tokenization, one word list, memory-mapped files."""

import itertools
import json
import logging
import os
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gyral.core.errors import OptionError, UserError
from gyral.core.parallel import parallel_map
from gyral.core.progress import line
from gyral.data.splits import SPLITS
from gyral.data.summaries.parsing import SPECIAL, Report
from gyral.data.summaries.parts import DamagedPartError, read_part, write_part
from gyral.data.summaries.sources import ArticleSource, Record

log = logging.getLogger(__name__)

BLOCK = 1000  # records per part; an interrupted preparation resumes after the last complete part


def prepare(name: str, sources: Mapping[str, ArticleSource], target: Path, processes: int | None) -> None:
    """Tokenize the sources part by part in parallel, and join the parts.

    Args:
        name: name of the corpus, for the log and the progress bar.
        sources: source of each split.
        target: folder to write.
        processes: number of worker processes; None: one for each available core.

    Raises:
        OptionError: a split contains no pair, or cannot be read.
        UserError: a worker process was killed.
        OSError: the folder cannot be written.
    """
    log.info("preparing %s, once", name)
    working = target.with_name(f"{target.name}.parts")
    parts: dict[str, list[Path]] = {split: [] for split in SPLITS}

    def blocks(split: str, source: ArticleSource) -> Iterator[tuple[Path, list[Record], str, str]]:
        records = source.records()
        while block := list(itertools.islice(records, BLOCK)):
            parts[split].append(working / f"{split}-{len(parts[split]):06}.npz")
            advance(block[-1].progress)
            if not _is_whole(parts[split][-1]):  # else an interrupted preparation has written it
                yield parts[split][-1], block, source.form, source.mode

    for split, source in sources.items():
        with _progress_bar(f"{name}, {split}") as advance:
            try:
                for _ in parallel_map(write_part, blocks(split, source), processes):
                    pass
            except BrokenExecutor:
                reason = "the system killed a process that prepares it; memory may have run out"
                raise UserError(f"{source.path}: {reason}; the same command continues the preparation") from None
        if not any(read_part(path).report.kept for path in parts[split]):
            reports = [read_part(path).report for path in parts[split]]
            shutil.rmtree(working, ignore_errors=True)
            reason = f"contains no pair of an article and a summary ({_total(reports)})"
            raise OptionError(split, source.path, reason)
    _join(parts, target)
    shutil.rmtree(working)


@contextmanager
def _progress_bar(title: str) -> Iterator[Any]:
    """Show a progress bar on standard error if that is a terminal; yield a function that sets it, 0 to 1."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with line.hidden(), bar as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda done: progress.update(task, completed=done)


def _is_whole(part: Path) -> bool:
    """Return whether a part exists and is as it was written."""
    if not part.is_file():
        return False
    try:
        read_part(part)
    except DamagedPartError as error:
        log.warning("%s; it is prepared again", str(error).partition(": remove")[0])
        return False
    return True


def _total(reports: list[Report]) -> Report:
    total = Report()
    for report in reports:
        total.update(report)
    return total


def _join(parts: dict[str, list[Path]], target: Path) -> None:
    """Number all words of the parts and write the corpus: a folder that is written completely or not at all."""
    words, trained = _word_list(parts)
    index = {word: number for number, word in enumerate(words)}
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as temporary:
        folder = Path(temporary) / "corpus"
        folder.mkdir()
        text = "\n".join(words).encode()
        (folder / "words.txt").write_bytes(text)
        reports, end = {}, 0
        with (folder / "tokens.bin").open("wb") as file:
            for split, paths in parts.items():
                bounds, found = [np.array([end])], []
                for path in paths:
                    part = read_part(path)
                    numbers = np.array([index[word] for word in part.words], dtype=np.uint32)
                    file.write(numbers[part.tokens].data)
                    bounds.append(part.bounds + end)
                    end += len(part.tokens)
                    found.append(part.report)
                np.save(folder / f"{split}.npy", np.concatenate(bounds))
                reports[split] = asdict(_total(found))
        description = {
            "trained": trained,
            "reports": reports,
            "checksums": {path.name: checksum(path) for path in folder.iterdir()},
        }
        (folder / "corpus.json").write_text(json.dumps({"description": description, "checksum": checksum(description)}))
        if target.is_dir():
            shutil.rmtree(target)  # it is damaged
        os.replace(folder, target)


def checksum(content: Path | Mapping[str, Any]) -> int:
    """Return the CRC-32 of a file, or of a description as JSON."""
    if not isinstance(content, Path):
        return zlib.crc32(json.dumps(content, sort_keys=True).encode())
    value = 0
    with content.open("rb") as file:
        while block := file.read(2**20):
            value = zlib.crc32(block, value)
    return value


def _word_list(parts: dict[str, list[Path]]) -> tuple[list[str], int]:
    """Return all words of a corpus in order, and the number of those in training, including the special symbols."""
    counts: Counter[str] = Counter()
    others: set[str] = set()
    for split, paths in parts.items():
        for path in paths:
            part = read_part(path)
            if split == "train":
                for word, count in zip(part.words, part.counts.tolist(), strict=True):
                    counts[word] += count
            else:
                others.update(part.words)
    for word in SPECIAL:
        counts.pop(word, None)
    known = sorted(counts, key=lambda word: (-counts[word], word))
    return [*SPECIAL, *known, *sorted(others - counts.keys() - set(SPECIAL))], len(SPECIAL) + len(known)
