"""Preparation of large corpora: encoded part by part in parallel, and joined into one list of words and arrays.

Each kind of corpus has its own function to encode a part. An interrupted preparation keeps the parts that are complete.

This module does not import torch, because many worker processes import it.
"""

import itertools
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gyral.core.console import Console, Progress
from gyral.core.errors import OptionError, UserError
from gyral.core.files import replace_when_written
from gyral.core.measures import SPLITS
from gyral.core.parallel import parallel_map
from gyral.core.progress import line
from gyral.data.arrays import check_arrays
from gyral.data.corpus_cache import Corpus, Prepared, Writer, load_or_prepare
from gyral.data.raw_examples import DamagedPartError, RawExample, Report, restore_report

log = logging.getLogger(__name__)

BLOCK = 1000  # examples per part; an interrupted preparation resumes after the last complete part


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
        symbols: the words of the block, all different.
        arrays: the encoded examples. The array `words` has indices into `symbols`.
        report: counts of kept and skipped examples.
    """

    symbols: list[str]
    arrays: Mapping[str, np.ndarray]
    report: Report


class Kind(NamedTuple):
    """A kind of corpus.

    Attributes:
        version: version of the encoding; increment it to invalidate all earlier caches.
        encode: returns a part for its examples and the arguments of their source; a function at the top level of a
            module, because worker processes call it.
        special: special symbols, which come first in the word list.
        example, unit: singular and plural of the word for an example, for errors.
    """

    version: int
    encode: Callable[..., Part]
    special: tuple[str, ...]
    example: str
    unit: str


class EncodedCorpus(NamedTuple):
    """A corpus that was encoded in parts.

    Attributes:
        folder: folder of the cached files.
        splits: the arrays of each split, memory-mapped and read-only. The array `words` has indices into the list of
            all words.
        reports: for each split the counts of kept and skipped examples.
        trained: number of special symbols and of words in the training split, which come first in the list.
        listed: the list of all words as UTF-8, a word on each line.
    """

    folder: Path
    splits: dict[str, dict[str, np.ndarray]]
    reports: dict[str, Report]
    trained: int
    listed: np.ndarray

    def words(self, most: int = -1) -> list[str]:
        """Return the list of all words, or its first words.

        The list begins with the special symbols. The words of the training split follow, by descending frequency and
        then by code points, and then the words of the other splits, by code points.
        """
        return self.listed.tobytes().decode().split("\n", most)[: most if most >= 0 else None]


def write_part(path: Path, encode: Callable[..., Part], examples: list[RawExample], *arguments: Any) -> None:
    """Encode examples into a file, which is written completely or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    part = encode(examples, *arguments)
    content: dict[str, Any] = {
        "symbols": np.frombuffer("\n".join(part.symbols).encode(), dtype=np.uint8),
        "report": np.frombuffer(json.dumps(asdict(part.report)).encode(), dtype=np.uint8),
        **part.arrays,
    }

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **content)

    replace_when_written(path, write)


def read_part(path: Path) -> Part:
    """Read a file that `write_part` wrote; it contains a checksum of each array, as every ZIP archive does.

    Raises:
        DamagedPartError: the content differs from what was written.
    """
    try:
        with path.open("rb") as file, np.load(file) as saved:  # NumPy leaves a file open that it cannot read
            check_arrays(saved, path.stat().st_size)
            arrays = dict(saved)
        text = arrays.pop("symbols").tobytes().decode()
        symbols = text.split("\n") if text else []  # of a block without a single example that can be used
        return Part(symbols, arrays, restore_report(json.loads(arrays.pop("report").tobytes())))
    except Exception as error:  # NumPy, zipfile and JSON raise many kinds
        raise DamagedPartError(f"{path}: is damaged ({error}): remove it and run the same command again") from error


def load(
    name: str,
    kind: Kind,
    sources: Mapping[str, Source],
    data_dir: str | Path,
    processes: int | None,
    build: Callable[[EncodedCorpus], Corpus],
) -> Corpus:
    """Return a corpus, encoded part by part in parallel once and cached.

    The preparation shows a progress bar on a terminal, its memory use does not grow with the number of examples, and it
    resumes after an interruption.

    Args:
        name: name of the corpus, for the log and the progress bar.
        kind: how examples are encoded.
        sources: source of each split.
        data_dir: data folder, which contains the cache if it is writable.
        processes: number of worker processes; None: one for each available core.
        build: returns the corpus of the encoded one.

    Raises:
        OptionError: a split contains no example, or cannot be read; no cache directory is writable.
        UserError: a worker process was killed.
    """

    def read(prepared: Prepared) -> Corpus:
        arrays, about = prepared.arrays, prepared.about
        splits: dict[str, dict[str, np.ndarray]] = {
            split: {key: arrays[f"{split}-{key}"] for key in about["arrays"]} for split in SPLITS
        }
        reports = {split: restore_report(report) for split, report in about["reports"].items()}
        return build(EncodedCorpus(prepared.folder, splits, reports, about["trained"], arrays["words"]))

    key = [kind.version, BLOCK, [sources[split].fingerprint() for split in SPLITS]]
    return load_or_prepare(name, key, data_dir, lambda: partial(_prepare, name, kind, sources, processes), read)


def _prepare(name: str, kind: Kind, sources: Mapping[str, Source], processes: int | None, writer: Writer) -> None:
    """Encode the sources in parts, and join the parts."""
    parts = {split: _write_parts(writer.parts, name, kind, split, sources[split], processes) for split in SPLITS}
    words, trained = _word_list(parts, kind.special)
    index = {word: number for number, word in enumerate(words)}
    writer.append("words", "\n".join(words).encode())
    reports = {}
    for split, paths in parts.items():
        reports[split] = Report()
        for part in map(read_part, paths):
            numbers = np.array([index[word] for word in part.symbols], dtype=np.uint32)
            arrays = {**part.arrays, "words": numbers[part.arrays["words"]]}
            for key, array in arrays.items():
                writer.append(f"{split}-{key}", array)
            reports[split].update(part.report)
    saved = {split: asdict(report) for split, report in reports.items()}
    writer.about |= {"trained": trained, "arrays": [*arrays], "reports": saved}


def _write_parts(folder: Path, name: str, kind: Kind, split: str, source: Source, processes: int | None) -> list[Path]:
    """Encode the examples of a split in parts, unless a whole part exists, and return the files of the parts."""
    parts: list[Path] = []

    def blocks() -> Iterator[tuple[Any, ...]]:
        examples = source.raw_examples()
        while found := list(itertools.islice(examples, BLOCK)):
            parts.append(folder / f"{split}-{len(parts):06}.npz")
            advance(found[-1].progress)
            if not _is_whole(parts[-1]):  # an interrupted preparation keeps its parts
                yield parts[-1], kind.encode, found, *source.arguments

    with _progress_bar(f"{name}, {split}") as advance:
        try:
            for _ in parallel_map(write_part, blocks(), processes):
                pass
        except BrokenExecutor:
            reason = "the system killed a process that prepares it; memory may have run out"
            raise UserError(f"{source.path}: {reason}; the same command continues the preparation") from None
    report = Report()
    for path in parts:
        report.update(read_part(path).report)
    if not report.kept:
        shutil.rmtree(folder, ignore_errors=True)
        place = f"{source.files[0]}: " if [*map(str, source.files)] not in ([], [source.path]) else ""
        reason = f"{place}contains no {kind.example} for the split {split} (0 {kind.unit}{report.oddities()})"
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


def _word_list(parts: Mapping[str, Sequence[Path]], special: Sequence[str]) -> tuple[list[str], int]:
    """Return `EncodedCorpus.words` and `EncodedCorpus.trained`."""
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}  # of training and of the other splits
    for split, paths in parts.items():
        for part in map(read_part, paths):
            found = np.bincount(part.arrays["words"], minlength=len(part.symbols)).tolist()
            counts[split == "train"].update(dict(zip(part.symbols, found, strict=True)))
    trained = counts[True]
    listed = dict.fromkeys([*special, *sorted(trained, key=lambda word: (-trained[word], word))])
    return [*dict.fromkeys([*listed, *sorted(counts[False])])], len(listed)
