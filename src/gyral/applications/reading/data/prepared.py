"""Corpora of questions about documents: prepared once, cached as integers, and memory-mapped."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from gyral.applications.reading.data.encoded import StoredQuestions, check_question, sizes_of
from gyral.applications.reading.data.questions import Question, ReadingBatch
from gyral.applications.reading.data.sources import QuestionSource
from gyral.core.checks import check_integer
from gyral.core.edges import Edge
from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS
from gyral.data import preparation
from gyral.data.batching import IGNORED
from gyral.data.preparation import Part, load_or_prepare, read_corpus, read_part, save_part, total
from gyral.data.raw_examples import RawExample, Report, UnusableError, restore_report
from gyral.data.vocabulary import PADDING, UNKNOWN, Vocabulary

log = logging.getLogger(__name__)

FORMAT = 2  # version of the cached files; increment it to invalidate all earlier caches
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


def write_part(path: Path, examples: list[RawExample], parse: Callable[[Any, str, Report], list[Question]]) -> None:
    """Encode the questions of examples into a file, which is written completely or not at all.

    The arrays of the part are the arrays of `ARRAYS`, without padding, where words and candidates are word indices, and
    `sizes`, (q, 7) integers with the columns of `StoredQuestions` and the number of edges.

    Raises:
        OSError: the file cannot be written.
    """
    report = Report()
    index: dict[str, int] = {}
    values: dict[str, list[Any]] = {name: [] for name in ARRAYS}
    sizes = []
    for question in parse_examples(examples, parse, report):
        length = len(question.document) + len(question.query)
        values["words"] += [index.setdefault(word, len(index)) for word in (*question.document, *question.query)]
        values["mentions"] += [*question.mentions, *[0] * len(question.query)]
        values["chains"] += question.chains or [0] * length
        values["candidates"] += [index.setdefault(name, len(index)) for name in question.candidates]
        values["edges"] += question.edges
        sizes.append((*sizes_of(question), len(question.edges)))
    arrays = {name: np.array(values[name], dtype=kind).reshape(-1, *end) for name, (kind, end) in ARRAYS.items()}
    counts = np.bincount(arrays["words"], minlength=len(index))
    arrays["sizes"] = np.array(sizes, dtype=np.int64).reshape(-1, 7)
    save_part(path, Part(list(index), counts, arrays, report))


def parse_examples(
    examples: Sequence[RawExample], parse: Callable[[Any, str, Report], list[Question]], report: Report
) -> Iterator[Question]:
    """Yield the questions in examples, and count the kept and the skipped examples in a report."""
    for place, content, _ in examples:
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


def prepare(name: str, sources: Mapping[str, QuestionSource], target: Path, processes: int | None) -> None:
    """Encode the questions and write a corpus; see `gyral.data.preparation.prepare`.

    Raises:
        UserError: also if a question has chains outside its words.
    """
    preparation.prepare(
        name,
        sources,
        target,
        processes,
        write=write_part,
        join=_join,
        special=SPECIAL,
        example="question",
        unit="questions",
    )


def _join(folder: Path, parts: dict[str, list[Path]], index: dict[str, int]) -> dict[str, Report]:
    """Write the files of a corpus, in which words have the numbers of `index`, and return the report on each split."""
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
                for name, file in files.items():
                    array = part.arrays[name]
                    file.write((numbers[array] if name in ("words", "candidates") else array).tobytes())
                sizes.append(part.arrays["sizes"])
                found.append(part.report)
        np.save(folder / f"{split}.npy", np.concatenate(sizes))
        reports[split] = total(found)
    return reports


class PreparedQuestions(StoredQuestions):
    """The questions of a split of a prepared corpus, memory-mapped.

    Args:
        folder: folder of the corpus.
        split: "train", "val" or "test".
        vocabulary_size: words with higher numbers in the word list of the corpus are `<unk>`.
        answerable_only: whether to leave out questions whose answer is not a candidate.
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
            and the words of the other splits. Words that are not in the training split keep their initial embeddings,
            and a reader recognizes them by these, as in the code of Dhingra et al. (bdhingra/ga-reader).
        splits: the questions of "train", "val" and "test", without training questions that have no answer.
        reports: for each split the counts of kept and skipped examples.
        substitute: description of the missing data and its substitute; empty for published questions.
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
    edge_types: int = 1,
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
        edge_types: E, number of types of edges.
        processes: number of worker processes; None: one for each available core, or one for a small corpus.

    Raises:
        OptionError: as `prepare`; no training question can be answered; a size below 3; no cache directory is writable.
        UserError: as `prepare`.
    """
    check_integer("vocabulary_size", vocabulary_size, len(SPECIAL) + 1)
    is_small = sum(source.bytes for source in sources.values()) < SMALL
    corpus = load_or_prepare(
        name,
        FORMAT,
        sources,
        data_dir,
        lambda folder: _read(folder, name, vocabulary_size, edge_types),
        lambda folder: prepare(name, sources, folder, 1 if processes is None and is_small else processes),
    )
    for split, report in corpus.reports.items():
        log.info("%s, %s: %s questions%s", name, split, f"{report.kept:,}", report.oddities())
        if not len(corpus.splits[split]):
            source = sources[split]
            reason = f"the split {split} has no question whose answer is one of its candidates{report.oddities()}"
            raise OptionError(source.option, source.path, f"{source.files[0]}: {reason}")
    return corpus


def _read(folder: Path, name: str, vocabulary_size: int, edge_types: int) -> ReadingCorpus | None:
    """Return a corpus from the cache, or None if it is missing or damaged."""

    def build(description: dict[str, Any]) -> ReadingCorpus:
        end = min(vocabulary_size, description["size"])
        symbols = (folder / "words.txt").read_bytes().decode().split("\n", end)[:end]
        reports = {split: restore_report(report) for split, report in description["reports"].items()}
        splits: dict[str, StoredQuestions] = {
            split: PreparedQuestions(folder, split, end, answerable_only=split == "train", edge_types=edge_types)
            for split in SPLITS
        }
        return ReadingCorpus(name, Vocabulary("word", symbols), splits, reports, folder=folder)

    return read_corpus(folder, build)
