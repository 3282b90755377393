"""Preparation of large corpora: encoded part by part in parallel, joined, and cached.

Each kind of corpus has its own functions to encode a part and to join parts. An interrupted preparation keeps the parts
that are complete. The folder of a corpus is written completely or not at all, and its files have checksums. A lock lets
one process prepare the corpus while others wait.

This module does not import torch, because many worker processes import it.
"""

import hashlib
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
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gyral.core.cache import cache_candidates
from gyral.core.console import Console, Progress
from gyral.core.errors import OptionError, UserError
from gyral.core.files import replace_when_written
from gyral.core.locks import lock_file
from gyral.core.measures import SPLITS
from gyral.core.parallel import parallel_map
from gyral.core.progress import line
from gyral.data.arrays import check_arrays
from gyral.data.raw_examples import DamagedPartError, RawExample, Report, restore_report

log = logging.getLogger(__name__)

BLOCK = 1000  # examples per part; an interrupted preparation resumes after the last complete part

Corpus = TypeVar("Corpus")


class Source(Protocol):
    """The records of a split, the option that selects them, its value, and the files."""

    option: str
    path: str
    files: list[Path]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Further arguments of the function that encodes examples."""

    def raw_examples(self) -> Iterator[RawExample]:
        """Yield the examples."""

    def fingerprint(self) -> Any:
        """Return values that identify the content, which JSON can represent."""


class Part(NamedTuple):
    """A block of encoded examples.

    Attributes:
        words: the words of the block, all different.
        counts: (w,) number of occurrences of each word.
        arrays: the encoded examples; words are indices into `words`.
        report: counts of kept and skipped examples.
    """

    words: list[str]
    counts: np.ndarray
    arrays: dict[str, np.ndarray]
    report: Report


def save_part(path: Path, part: Part) -> None:
    """Write a file of a part completely or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    content: dict[str, Any] = {
        "list": np.frombuffer("\n".join(part.words).encode(), dtype=np.uint8),
        "counts": part.counts,
        "report": np.frombuffer(json.dumps(asdict(part.report)).encode(), dtype=np.uint8),
        **part.arrays,
    }

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **content)

    replace_when_written(path, write)


def read_part(path: Path) -> Part:
    """Read a file that `save_part` wrote; it contains a checksum of each array, as every ZIP archive does.

    Raises:
        DamagedPartError: the content differs from what was written.
    """
    try:
        with path.open("rb") as file, np.load(file) as saved:  # NumPy leaves a file open that it cannot read
            check_arrays(saved, path.stat().st_size)
            arrays = dict(saved)
        text = arrays.pop("list").tobytes().decode()
        words = text.split("\n") if text else []  # of a block without a single example that can be used
        report = restore_report(json.loads(arrays.pop("report").tobytes()))
        return Part(words, arrays.pop("counts"), arrays, report)
    except Exception as error:  # NumPy, zipfile and JSON raise many kinds
        raise DamagedPartError(f"{path}: is damaged ({error}): remove it and run the same command again") from error


def prepare(
    name: str,
    sources: Mapping[str, Source],
    target: Path,
    processes: int | None,
    *,
    write: Callable[..., None],
    join: Callable[[Path, dict[str, list[Path]], dict[str, int]], dict[str, Report]],
    special: Sequence[str],
    example: str,
    unit: str,
) -> None:
    """Encode the sources part by part in parallel, and join the parts to a corpus.

    Args:
        name: name of the corpus, for the log and the progress bar.
        sources: source of each split.
        target: folder to write.
        processes: number of worker processes; None: one for each available core.
        write: encodes examples into a file: its path, the examples, and the arguments of their source.
        join: writes the files of a corpus, given the folder, the parts of each split, and the number of each word in
            the corpus. It returns the report on each split.
        special: special symbols, which come first in the word list.
        example, unit: singular and plural of the word for an example, for errors.

    Raises:
        OptionError: a split contains no example, or cannot be read.
        UserError: a worker process was killed.
        OSError: the folder cannot be written.
    """
    log.info("preparing %s, once", name)
    working = target.with_name(f"{target.name}.parts")
    parts = _write_parts(name, sources, working, write, processes, example, unit)
    words, training_size, size = word_list(parts, special)
    with writing_corpus(target) as (folder, description):
        (folder / "words.txt").write_bytes("\n".join(words).encode())
        reports = join(folder, parts, {word: number for number, word in enumerate(words)})
        saved = {split: asdict(report) for split, report in reports.items()}
        description |= {"trained": training_size, "size": size, "reports": saved}
    shutil.rmtree(working)


def _write_parts(
    name: str,
    sources: Mapping[str, Source],
    working: Path,
    write: Callable[..., None],
    processes: int | None,
    example: str,
    unit: str,
) -> dict[str, list[Path]]:
    """Encode the examples of each split in parts, unless a whole part exists, and return the files of the parts."""
    parts: dict[str, list[Path]] = {split: [] for split in SPLITS}

    def blocks(split: str, source: Source) -> Iterator[tuple[Any, ...]]:
        examples = source.raw_examples()
        while found := list(itertools.islice(examples, BLOCK)):
            parts[split].append(working / f"{split}-{len(parts[split]):06}.npz")
            advance(found[-1].progress)
            if not _is_whole(parts[split][-1]):  # an interrupted preparation keeps its parts
                yield parts[split][-1], found, *source.arguments

    for split, source in sources.items():
        with _progress_bar(f"{name}, {split}") as advance:
            try:
                for _ in parallel_map(write, blocks(split, source), processes):
                    pass
            except BrokenExecutor:
                reason = "the system killed a process that prepares it; memory may have run out"
                raise UserError(f"{source.path}: {reason}; the same command continues the preparation") from None
        if not any(read_part(path).report.kept for path in parts[split]):
            found = total([read_part(path).report for path in parts[split]])
            shutil.rmtree(working, ignore_errors=True)
            place = f"{source.files[0]}: " if [*map(str, source.files)] not in ([], [source.path]) else ""
            reason = f"{place}contains no {example} for the split {split} (0 {unit}{found.oddities()})"
            raise OptionError(source.option, source.path, reason)
    return parts


@contextmanager
def _progress_bar(title: str) -> Iterator[Any]:
    """Show a progress bar on standard error if that is a terminal; yield a function that sets it, 0 to 1."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with line.hidden(), bar as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda done: progress.update(task, completed=done)


def _is_whole(part: Path) -> bool:
    """Return whether a part exists and is not damaged."""
    if not part.is_file():
        return False
    try:
        read_part(part)
    except DamagedPartError as error:
        log.warning("%s; it is prepared again", str(error).partition(": remove")[0])
        return False
    return True


def total(reports: Sequence[Report]) -> Report:
    """Return the sum of reports."""
    found = Report()
    for report in reports:
        found.update(report)
    return found


def word_list(parts: Mapping[str, Sequence[Path]], special: Sequence[str]) -> tuple[list[str], int, int]:
    """Return all words of a corpus in order, the number of those in training, and the number of those in any split.

    The special symbols come first and count as words in training. The words of the training split follow, by descending
    frequency and then by code points. The words of the other splits come next, and then the words that occur in no
    text, both by code points.
    """
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}  # of training and of the other splits
    for split, paths in parts.items():
        for path in paths:
            part = read_part(path)
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
        (folder / "corpus.json").write_text(
            json.dumps({"description": description, "checksum": checksum(description)}), encoding="utf-8"
        )
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
        if any(path.exists() and not path.is_file() for path in folder.iterdir()):  # reading a named pipe would block
            raise ValueError("not a file")
        saved = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
        description = saved["description"]
        if checksum(description) != saved["checksum"]:
            raise ValueError("checksum of corpus.json")
        if not {*description["checksums"]} <= {path.name for path in folder.iterdir()}:
            raise ValueError("checksums of files elsewhere")
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
    version: int,
    sources: Mapping[str, Source],
    data_dir: str | Path,
    read: Callable[[Path], Corpus | None],
    prepare: Callable[[Path], None],
) -> Corpus:
    """Return a corpus from a cache; if no cache contains it, prepare it.

    Args:
        name: name of the corpus.
        version: version of the cached files.
        sources: source of each split.
        data_dir: data folder, which contains the cache if it is writable.
        read: returns the corpus in a folder, or None if it is missing or damaged.
        prepare: writes the folder.

    Raises:
        OptionError: no cache directory is writable.
    """
    key = [version, BLOCK, [sources[split].fingerprint() for split in SPLITS]]
    stem = f"{name[:40]}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"
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
        failures.append(f"{folder / stem}: the written corpus differs when it is read back")
    raise OptionError("data_dir", data_dir, f"no folder can be written to cache {name} ({'; '.join(failures)})")


def _wait_for_lock(path: Path) -> AbstractContextManager[Any]:
    """Acquire a lock, after a log message if another process is preparing the same corpus."""
    try:
        return lock_file(path)
    except BlockingIOError:
        log.info("%s: waiting for another process that prepares it", path.stem)
        return lock_file(path, seconds=None)
