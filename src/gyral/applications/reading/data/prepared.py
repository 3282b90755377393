"""Corpora of questions about documents: prepared once, cached as integers, and memory-mapped."""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from gyral.applications.reading.data.encoded import StoredQuestions, check_question, sizes_of
from gyral.applications.reading.data.questions import Question, ReadingBatch
from gyral.applications.reading.data.sources import QuestionSource
from gyral.core.checks import check_integer
from gyral.core.edges import Edge
from gyral.core.errors import OptionError
from gyral.core.files import replace_when_written
from gyral.data.batching import IGNORED
from gyral.data.preparation import (
    described,
    load_or_prepare,
    read_corpus,
    total,
    word_list,
    write_parts,
    writing_corpus,
)
from gyral.data.records import DamagedPartError, Record, Report, UnusableError, restore_report
from gyral.data.splits import SPLITS
from gyral.data.vocabulary import PADDING, UNKNOWN, Vocabulary

log = logging.getLogger(__name__)

FORMAT = 2  # version of the cached files; increment it to invalidate all earlier caches
BLOCK = 1000  # records per part; an interrupted preparation resumes after the last complete part
SPECIAL = (PADDING, UNKNOWN)
UNKNOWN_ID = SPECIAL.index(UNKNOWN)
LONGEST = 2**16 - 1  # words of a document and its question
SIZE = 200_000  # vocabulary size
SMALL = 100_000_000  # bytes of a corpus that one process encodes before others have started
UNANSWERABLE = "whose answer is none of the candidates, which counts as wrong"
LENGTH, ANSWER, CANDIDATES, EDGES = 0, 3, 5, 6  # columns of the sizes of questions

# Arrays that hold all questions of a split one after another, and their types. The first element is padding.
ARRAYS: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
    "words": (np.dtype(np.uint32), ()),
    "mentions": (np.dtype(np.uint16), ()),
    "chains": (np.dtype(np.uint16), ()),
    "candidates": (np.dtype(np.uint32), ()),
    "edges": (np.dtype(np.int32), (3,)),
}


class Part(NamedTuple):
    """Encoded questions, with a word list of their own.

    Attributes:
        words: the words of the questions and the names of their candidates, all different.
        counts: (w,) how often each word occurs in documents and questions.
        arrays: the arrays of `ARRAYS`, without padding; words and candidates are indices into `words`.
        sizes: (q, 7) integers, with the columns of `StoredQuestions` and the number of edges.
        report: counts of kept and skipped records.
    """

    words: list[str]
    counts: np.ndarray
    arrays: dict[str, np.ndarray]
    sizes: np.ndarray
    report: Report


def write_part(path: Path, records: list[Record], parse: Callable[[Any, str, Report], list[Question]]) -> None:
    """Encode the questions of records into a file, which is written completely or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    report = Report()
    index: dict[str, int] = {}
    values: dict[str, list[Any]] = {name: [] for name in ARRAYS}
    sizes = []
    for question in parse_records(records, parse, report):
        length = len(question.document) + len(question.query)
        values["words"] += [index.setdefault(word, len(index)) for word in (*question.document, *question.query)]
        values["mentions"] += [*question.mentions, *[0] * len(question.query)]
        values["chains"] += question.chains or [0] * length
        values["candidates"] += [index.setdefault(name, len(index)) for name in question.candidates]
        values["edges"] += question.edges
        sizes.append((*sizes_of(question), len(question.edges)))
    arrays = {name: np.array(values[name], dtype=kind).reshape(-1, *end) for name, (kind, end) in ARRAYS.items()}

    content: dict[str, Any] = {
        "list": np.frombuffer("\n".join(index).encode(), dtype=np.uint8),
        "counts": np.bincount(arrays["words"], minlength=len(index)),
        "sizes": np.array(sizes, dtype=np.int64).reshape(-1, 7),
        "report": np.frombuffer(json.dumps(asdict(report)).encode(), dtype=np.uint8),
        **arrays,
    }

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **content)

    replace_when_written(path, write)


def parse_records(
    records: Sequence[Record], parse: Callable[[Any, str, Report], list[Question]], report: Report
) -> Iterator[Question]:
    """Yield the questions in some records and add to a report which were kept and skipped."""
    for place, content, _ in records:
        try:
            if isinstance(content, Exception):
                raise content
            questions = parse(content, place, report)
        except UnusableError as error:
            report.add(report.left_out, str(error), place)
            continue
        for question in questions:
            if len(question.document) + len(question.query) > LONGEST:
                report.add(report.left_out, f"with over {LONGEST:,} words", place)
                continue
            check_question(question, max([1, *(edge.type for edge in question.edges)]))
            report.kept += 1
            if question.answer == IGNORED:
                report.add(report.noted, UNANSWERABLE, place)
            yield question


def read_part(path: Path) -> Part:
    """Read a file that `write_part` wrote; it contains a checksum of each array, as every ZIP archive does.

    Raises:
        DamagedPartError: the content differs from what was written.
    """
    try:
        with path.open("rb") as file, np.load(file) as saved:  # NumPy leaves a file open that it cannot read
            words = saved["list"].tobytes().decode().split("\n")
            report = restore_report(json.loads(saved["report"].tobytes()))
            return Part(words, saved["counts"], {name: saved[name] for name in ARRAYS}, saved["sizes"], report)
    except Exception as error:  # NumPy, zipfile and JSON raise many kinds
        raise DamagedPartError(f"{path}: is damaged ({error}): remove it and run the same command again") from error


def prepare(name: str, sources: Mapping[str, QuestionSource], target: Path, processes: int | None) -> None:
    """Encode the questions part by part in parallel, and join the parts.

    Args:
        name: name of the corpus, for the log and the progress bar.
        sources: source of each split.
        target: folder to write.
        processes: number of worker processes; None: one for each available core.

    Raises:
        OptionError: a split contains no question, or cannot be read.
        UserError: a worker process was killed, or a question has chains outside its words.
        OSError: the folder cannot be written.
    """
    log.info("preparing %s, once", name)
    working = target.with_name(f"{target.name}.parts")
    parts = write_parts(
        name,
        sources,
        working,
        block=BLOCK,
        write=write_part,
        read=read_part,
        example="question",
        unit="questions",
        processes=processes,
    )
    _join(parts, target)
    shutil.rmtree(working)


def _join(parts: dict[str, list[Path]], target: Path) -> None:
    """Number all words of the parts and write the corpus: a folder that is written completely or not at all."""
    words, _, size = word_list(parts, read_part, SPECIAL)
    index = {word: number for number, word in enumerate(words)}
    with writing_corpus(target) as (folder, description):
        (folder / "words.txt").write_bytes("\n".join(words).encode())
        reports = {}
        for split, paths in parts.items():
            sizes, found = [], []
            with ExitStack() as stack:
                files: dict[str, IO[bytes]] = {
                    name: stack.enter_context((folder / f"{split}-{name}.bin").open("wb")) for name in ARRAYS
                }
                for name, (kind, end) in ARRAYS.items():
                    files[name].write(np.zeros((1, *end), kind).data)
                for path in paths:
                    part = read_part(path)
                    numbers = np.array([index[word] for word in part.words], dtype=np.uint32)
                    for name, array in part.arrays.items():
                        files[name].write((numbers[array] if name in ("words", "candidates") else array).tobytes())
                    sizes.append(part.sizes)
                    found.append(part.report)
            np.save(folder / f"{split}.npy", np.concatenate(sizes))
            reports[split] = total(found)
        description |= {"size": size, "reports": described(reports)}


class PreparedQuestions(StoredQuestions):
    """The questions of a split of a prepared corpus, memory-mapped.

    Args:
        folder: folder of the corpus.
        split: "train", "val" or "test".
        vocabulary_size: words with higher numbers in the word list of the corpus are `<unk>`.
        answerable_only: whether questions whose answer is none of the candidates are left out.
        edge_types: E, number of types of edges.
    """

    def __init__(
        self, folder: Path, split: str, vocabulary_size: int, *, answerable_only: bool = False, edge_types: int = 1
    ) -> None:
        sizes = np.load(folder / f"{split}.npy")
        arrays = {
            name: np.memmap(folder / f"{split}-{name}.bin", dtype=kind, mode="r").reshape(-1, *end)
            for name, (kind, end) in ARRAYS.items()
        }
        ends = np.cumsum(sizes, axis=0)
        starts = 1 + ends - sizes  # after the padding
        kept = sizes[:, ANSWER] != IGNORED if answerable_only else np.ones(len(sizes), dtype=bool)
        super().__init__(
            arrays["words"],
            arrays["mentions"],
            arrays["chains"],
            arrays["edges"],
            sizes=sizes[kept, :EDGES],
            starts=starts[kept, LENGTH],
            edge_starts=starts[kept, EDGES],
            edge_counts=sizes[kept, EDGES],
            edge_types=edge_types,
        )
        self._names, self._candidate_starts = arrays["candidates"], starts[kept, CANDIDATES]
        self._folder, self._split = folder, split
        self._vocabulary_size = vocabulary_size

    def batch(self, rows: np.ndarray) -> ReadingBatch:
        """Return the questions with the given indices as one batch.

        Args:
            rows: (B,) indices, B ≥ 1.
        """
        batch = super().batch(rows)
        return batch._replace(inputs=batch.inputs.where(batch.inputs < self._vocabulary_size, UNKNOWN_ID))

    def question(self, row: int, words: Sequence[str]) -> Question:
        """Return a question with its words, also those outside the vocabulary.

        Args:
            row: index of the question.
            words: `ReadingCorpus.words`.
        """
        start, length, split = self._starts[row], self.lengths[row], self._document_lengths[row]
        text = [words[number] for number in self._words[start : start + length]]
        first = self._candidate_starts[row]
        edges = self._edges[self._edge_starts[row] :][: self._edge_counts[row]]
        return Question(
            f"{self._split} {row + 1}",
            tuple(text[:split]),
            tuple(text[split:]),
            tuple(words[number] for number in self._names[first : first + self.candidates[row]]),
            tuple(self._mentions[start : start + split].tolist()),
            int(self.answers[row]),
            tuple(Edge(*edge) for edge in edges.tolist()),
            tuple(self._chains[start : start + length].tolist()),
            int(self._placeholders[row] - split) if self._placeholders[row] >= 0 else -1,
            int(self._tasks[row]),
        )


@dataclass(frozen=True)
class ReadingCorpus:
    """Questions about documents in three splits.

    Attributes:
        name: name of the corpus.
        vocabulary: `<pad>`, `<unk>`, the words of the training split by descending frequency and then by code points,
            and those of the other splits. Words that are not in the training split keep the vectors with which their
            embeddings begin, by which a reader recognizes them, as in the code of Dhingra et al. (bdhingra/ga-reader).
        splits: the questions of "train", "val" and "test"; those of training that cannot be answered are left out.
        reports: for each split the counts of kept and skipped records.
        substitute: what is missing and what takes its place; empty for published questions.
        folder: folder of the cached files; None: the questions are in memory.
    """

    name: str
    vocabulary: Vocabulary
    splits: dict[str, StoredQuestions]
    reports: dict[str, Report]
    substitute: str = ""
    folder: Path | None = None

    @cached_property
    def words(self) -> list[str]:
        """All words of the corpus by their numbers, including those outside the vocabulary."""
        if self.folder is None:
            return list(self.vocabulary.symbols)
        return (self.folder / "words.txt").read_bytes().decode().split("\n")


def load(
    name: str,
    sources: Mapping[str, QuestionSource],
    data_dir: str | Path,
    *,
    vocabulary_size: int = SIZE,
    processes: int | None = None,
) -> ReadingCorpus:
    """Return the questions of any files, prepared once and cached.

    The preparation shows a progress bar on a terminal, its memory use does not grow with the number of questions, and
    it resumes after an interruption. The cache is identified by the names, sizes and modification times of the files.

    Args:
        name: name of the corpus.
        sources: source of each split.
        data_dir: data folder, which contains the cache if it is writable.
        vocabulary_size: maximum vocabulary size, including the special symbols.
        processes: number of worker processes; None: one for each available core, or one for a small corpus.

    Raises:
        OptionError: as `prepare`; no training question can be answered; a size below 3; no cache directory is writable.
        UserError: as `prepare`.
    """
    check_integer("vocabulary_size", vocabulary_size, len(SPECIAL) + 1)
    key = [FORMAT, BLOCK, [sources[split].fingerprint() for split in SPLITS]]
    stem = f"{name[:40]}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"
    is_small = sum(source.bytes for source in sources.values()) < SMALL
    corpus = load_or_prepare(
        name,
        stem,
        data_dir,
        lambda folder: _read(folder, name, vocabulary_size),
        lambda folder: prepare(name, sources, folder, 1 if processes is None and is_small else processes),
    )
    for split, report in corpus.reports.items():
        log.info("%s, %s: %s questions%s", name, split, f"{report.kept:,}", report.oddities())
        if not len(corpus.splits[split]):
            source = sources[split]
            reason = f"the split {split} has no question whose answer is one of its candidates{report.oddities()}"
            raise OptionError(source.option, source.path, f"{source.files[0]}: {reason}")
    return corpus


def _read(folder: Path, name: str, vocabulary_size: int) -> ReadingCorpus | None:
    """Return a corpus from the cache, or None if it is missing or damaged."""

    def build(description: dict[str, Any]) -> ReadingCorpus:
        end = min(vocabulary_size, description["size"])
        symbols = (folder / "words.txt").read_bytes().decode().split("\n", end)[:end]
        reports = {split: restore_report(report) for split, report in description["reports"].items()}
        splits: dict[str, StoredQuestions] = {
            split: PreparedQuestions(folder, split, end, answerable_only=split == "train") for split in SPLITS
        }
        return ReadingCorpus(name, Vocabulary("word", symbols), splits, reports, folder=folder)

    return read_corpus(folder, build)
