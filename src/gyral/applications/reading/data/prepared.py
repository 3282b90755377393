"""Corpora of questions about documents: prepared once, cached as integers, and memory-mapped."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyral.applications.reading.data.encoded import SPECIAL, StoredQuestions, encode
from gyral.applications.reading.data.questions import Question
from gyral.applications.reading.data.sources import QuestionSource
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.data import preparation
from gyral.data.batching import IGNORED
from gyral.data.preparation import EncodedCorpus, Kind, Part
from gyral.data.raw_examples import RawExample, Report, UnusableError
from gyral.data.vocabulary import Vocabulary

log = logging.getLogger(__name__)

FORMAT = 2  # version of the encoding; increment it to invalidate all earlier caches
LONGEST = 2**16 - 1  # words of a document and its question
SIZE = 200_000  # vocabulary size
SMALL = 100_000_000  # bytes of a corpus that one process encodes before others have started
UNANSWERABLE = "whose answer is none of the candidates, which counts as wrong"


def encode_examples(examples: list[RawExample], parse: Callable[[Any, str, Report], list[Question]]) -> Part:
    """Encode the questions of examples; the arrays of the part are those of `encode`.

    Raises:
        UserError: as `encode`.
    """
    report = Report()
    index: dict[str, int] = {}

    def number(words: list[str], name: str) -> list[int]:
        return [index.setdefault(word, len(index)) for word in words]

    arrays = encode(parse_examples(examples, parse, report), number)
    return Part(list(index), arrays, report)


KIND = Kind(FORMAT, encode_examples, SPECIAL, "question", "questions")


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
            report.kept += 1
            if question.answer == IGNORED:
                report.add(report.noted, UNANSWERABLE, place)
            yield question


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
    """

    name: str
    vocabulary: Vocabulary
    splits: dict[str, StoredQuestions]
    reports: dict[str, Report]
    substitute: str = ""


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

    The cache is identified by the names, sizes and modification times of the files; see `gyral.data.preparation.load`.

    Args:
        name: name of the corpus.
        sources: source of each split.
        data_dir: data folder, which contains the cache if it is writable.
        vocabulary_size: maximum vocabulary size, including the special symbols.
        edge_types: E, number of types of edges.
        processes: number of worker processes; None: one for each available core, or one for a small corpus.

    Raises:
        OptionError: as `gyral.data.preparation.load`; no training question can be answered; a size below 3.
        UserError: also if a question has chains outside its words.
    """
    check_integer("vocabulary_size", vocabulary_size, len(SPECIAL) + 1)
    is_small = sum(source.bytes for source in sources.values()) < SMALL

    def read(encoded: EncodedCorpus) -> ReadingCorpus:
        vocabulary = Vocabulary("word", encoded.words(vocabulary_size))
        splits = {
            split: StoredQuestions(
                arrays, edge_types, answerable_only=split == "train", vocabulary_size=len(vocabulary)
            )
            for split, arrays in encoded.splits.items()
        }
        return ReadingCorpus(name, vocabulary, splits, encoded.reports)

    workers = 1 if processes is None and is_small else processes
    corpus = preparation.load(name, KIND, sources, data_dir, workers, read)
    for split, report in corpus.reports.items():
        log.info("%s, %s: %s questions%s", name, split, f"{report.kept:,}", report.oddities())
        if not len(corpus.splits[split]):
            source = sources[split]
            reason = f"the split {split} has no question whose answer is one of its candidates{report.oddities()}"
            raise OptionError(source.option, source.path, f"{source.files[0]}: {reason}")
    return corpus
