"""Preparation of large corpora: encoded part by part in parallel, joined, and cached.

Each kind of corpus says how a part is encoded and how parts are joined. This module has what they share: parts that an
interrupted preparation keeps, a folder that is written completely or not at all and whose files have checksums, and a
lock, so that one process prepares the corpus and others wait. It does not import torch, because many worker processes
import it.
"""

import itertools
import json
import logging
import os
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gyral.core.cache import cache_candidates
from gyral.core.errors import OptionError, UserError
from gyral.core.locks import lock_file
from gyral.core.parallel import parallel_map
from gyral.core.progress import line
from gyral.data.records import DamagedPartError, Record, Report
from gyral.data.splits import SPLITS

log = logging.getLogger(__name__)

Corpus = TypeVar("Corpus")


class Source(Protocol):
    """The records of a split, the option that selects them, its value, and the files."""

    option: str
    path: str
    files: list[Path]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the function that encodes records gets after them."""

    def records(self) -> Iterator[Record]:
        """Yield the records."""


class EncodedPart(Protocol):
    """An encoded block of records, with a word list of its own and the count of each word."""

    @property
    def words(self) -> list[str]: ...

    @property
    def counts(self) -> np.ndarray: ...

    @property
    def report(self) -> Report: ...


def write_parts(
    name: str,
    sources: Mapping[str, Source],
    working: Path,
    *,
    block: int,
    write: Callable[..., None],
    read: Callable[[Path], EncodedPart],
    example: str,
    unit: str,
    processes: int | None,
) -> dict[str, list[Path]]:
    """Encode the records of each split in parts, in parallel, and return the files of the parts.

    Args:
        name: name of the corpus, for the progress bar.
        sources: source of each split.
        working: folder of the parts; parts that it has are not encoded again.
        block: records per part.
        write: encodes records into a file: its path, the records, and the arguments of their source.
        read: reads such a file.
        example, unit: what a record contains, and what several of them are called, for errors.
        processes: number of worker processes; None: one for each available core.

    Raises:
        OptionError: a split contains no example, or cannot be read.
        UserError: a worker process was killed.
        OSError: a part cannot be written.
    """
    parts: dict[str, list[Path]] = {split: [] for split in SPLITS}

    def blocks(split: str, source: Source) -> Iterator[tuple[Any, ...]]:
        records = source.records()
        while found := list(itertools.islice(records, block)):
            parts[split].append(working / f"{split}-{len(parts[split]):06}.npz")
            advance(found[-1].progress)
            if not _is_whole(parts[split][-1], read):  # else an interrupted preparation has written it
                yield parts[split][-1], found, *source.arguments

    for split, source in sources.items():
        with _progress_bar(f"{name}, {split}") as advance:
            try:
                for _ in parallel_map(write, blocks(split, source), processes):
                    pass
            except BrokenExecutor:
                reason = "the system killed a process that prepares it; memory may have run out"
                raise UserError(f"{source.path}: {reason}; the same command continues the preparation") from None
        if not any(read(path).report.kept for path in parts[split]):
            found = total([read(path).report for path in parts[split]])
            shutil.rmtree(working, ignore_errors=True)
            place = f"{source.files[0]}: " if [*map(str, source.files)] not in ([], [source.path]) else ""
            reason = f"{place}contains no {example} for the split {split} (0 {unit}{found.oddities()})"
            raise OptionError(source.option, source.path, reason)
    return parts


@contextmanager
def _progress_bar(title: str) -> Iterator[Any]:
    """Show a progress bar on standard error if that is a terminal; yield a function that sets it, 0 to 1."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with line.hidden(), bar as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda done: progress.update(task, completed=done)


def _is_whole(part: Path, read: Callable[[Path], EncodedPart]) -> bool:
    """Return whether a part exists and is as it was written."""
    if not part.is_file():
        return False
    try:
        read(part)
    except DamagedPartError as error:
        log.warning("%s; it is prepared again", str(error).partition(": remove")[0])
        return False
    return True


def total(reports: Sequence[Report]) -> Report:
    """Return one report for several."""
    found = Report()
    for report in reports:
        found.update(report)
    return found


def word_list(
    parts: Mapping[str, Sequence[Path]], read: Callable[[Path], EncodedPart], special: Sequence[str]
) -> tuple[list[str], int, int]:
    """Return all words of a corpus in order, the number of those in training, and the number of those in any split.

    The special symbols come first and count as words in training. The words of the training split follow, by descending
    frequency and then by code points, then those of the other splits and at last those that occur in no text, both by
    code points.
    """
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}  # of training and of the other splits
    for split, paths in parts.items():
        for path in paths:
            part = read(path)
            counts[split == "train"].update(dict(zip(part.words, part.counts.tolist(), strict=True)))
    trained, others = counts[True], counts[False]
    known = [word for word in sorted(trained, key=lambda word: (-trained[word], word)) if trained[word]]
    listed = dict.fromkeys([*special, *(word for word in known if word not in special)])
    training_size = len(listed)
    listed |= dict.fromkeys(sorted(word for word in others if others[word]))
    size = len(listed)
    listed |= dict.fromkeys(sorted({*trained, *others}))
    return list(listed), training_size, size


@contextmanager
def writing_corpus(target: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Write the folder of a corpus completely or not at all.

    Yield an empty folder to write files into and a dictionary for their description, which is stored as JSON, with
    checksums of the files, in `corpus.json`.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as temporary:
        folder = Path(temporary) / "corpus"
        folder.mkdir()
        description: dict[str, Any] = {}
        yield folder, description
        description["checksums"] = {path.name: checksum(path) for path in folder.iterdir()}
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


def read_corpus(folder: Path, build: Callable[[dict[str, Any]], Corpus]) -> Corpus | None:
    """Return a corpus from its folder, or None if the folder is missing or damaged.

    Args:
        folder: the folder.
        build: returns the corpus for the description in its folder.
    """
    try:
        if any(path.exists() and not path.is_file() for path in folder.iterdir()):  # a named pipe would be waited for
            raise ValueError("not a file")
        saved = json.loads((folder / "corpus.json").read_text())
        description = saved["description"]
        if checksum(description) != saved["checksum"]:
            raise ValueError("checksum of corpus.json")
        for file, expected in description["checksums"].items():
            if checksum(folder / file) != expected:
                raise ValueError(f"checksum of {file}")
        return build(description)
    except NotADirectoryError:
        return None
    except Exception as error:  # NumPy and JSON raise many kinds
        if folder.exists():
            log.warning("%s is damaged (%s) and is prepared again", folder, error)
        return None


def load_or_prepare(
    name: str,
    stem: str,
    data_dir: str | Path,
    read: Callable[[Path], Corpus | None],
    prepare: Callable[[Path], None],
) -> Corpus:
    """Return a corpus from a cache; if no cache contains it, prepare it.

    Args:
        name: name of the corpus.
        stem: name of its folder.
        data_dir: data folder, which contains the cache if it is writable.
        read: returns the corpus in a folder, or None if it is missing or damaged.
        prepare: writes the folder.

    Raises:
        OptionError: no cache directory is writable.
    """
    folders = cache_candidates(Path(data_dir))
    for folder in folders:
        if corpus := read(folder / stem):
            return corpus
    failures = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _wait_for_lock(folder / f"{stem}.lock"):
                found = read(folder / stem)  # another process may have prepared it
                if found is None:
                    prepare(folder / stem)
                    found = read(folder / stem)
        except OSError as error:
            failures.append(f"{error.filename or folder}: {error.strerror or error}")
            log.warning("%s", failures[-1])
            continue
        if found is not None:
            return found
        failures.append(f"{folder / stem}: what is written is not what is read")
    raise OptionError("data_dir", data_dir, f"no folder can be written to cache {name} ({'; '.join(failures)})")


def _wait_for_lock(path: Path) -> AbstractContextManager[Any]:
    """Acquire a lock, after a log message if another process is preparing the same corpus."""
    try:
        return lock_file(path)
    except BlockingIOError:
        log.info("%s: waiting for another process that prepares it", path.stem)
        return lock_file(path, wait=True)


def described(reports: Mapping[str, Report]) -> dict[str, Any]:
    """Return the reports of the splits for the description of a corpus."""
    return {split: asdict(report) for split, report in reports.items()}
