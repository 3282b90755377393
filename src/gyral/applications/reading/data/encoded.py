"""Encoded questions about documents, and batches of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gyral.applications.reading.data.questions import Question, ReadingBatch
from gyral.core.checks import check_integer
from gyral.core.edges import check_edges, place_edges
from gyral.core.errors import UserError
from gyral.data.batching import IGNORED
from gyral.data.vocabulary import PADDING, UNKNOWN, Vocabulary

SPECIAL = (PADDING, UNKNOWN)
UNKNOWN_ID = SPECIAL.index(UNKNOWN)
LENGTH, ANSWER, EDGES = 0, 3, 6  # columns of `sizes`

# The types of the arrays, and their dimensions but the first.
ARRAYS: dict[str, tuple[type[np.integer[Any]], tuple[int, ...]]] = {
    "words": (np.uint32, ()),
    "mentions": (np.uint16, ()),
    "chains": (np.uint16, ()),
    "edges": (np.int32, (3,)),
    "sizes": (np.int64, (7,)),
}


class StoredQuestions:
    """Encoded questions about documents that are stored one after another in arrays of integers.

    Args:
        arrays: the questions, see `encode`.
        edge_types: E, number of types of edges in addition to the edge from each step to the next.
        answerable_only: whether to leave out questions whose answer is not a candidate.
        vocabulary_size: higher indices of words are `<unk>`; None: all indices are in the vocabulary.

    Attributes:
        lengths: (n,) number of steps of each document with its question.
        answers: (n,) index of the answer of each question among its candidates, or `IGNORED`.
        candidates: (n,) number of candidates of each question.
        edge_types: E.

    Raises:
        OptionError: `edge_types` is below 1.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        edge_types: int = 1,
        *,
        answerable_only: bool = False,
        vocabulary_size: int | None = None,
    ) -> None:
        self.edge_types = check_integer("edge_types", edge_types)
        self._arrays, self._vocabulary_size = arrays, vocabulary_size
        sizes = arrays["sizes"]
        starts = np.cumsum(sizes, axis=0) - sizes
        kept = sizes[:, ANSWER] != IGNORED if answerable_only else np.full(len(sizes), True)
        columns = np.asarray(sizes)[kept].T
        self.lengths, self._document_lengths, self._placeholders, self.answers, self._tasks, self.candidates = columns[
            :6
        ]
        self._starts, self._edge_starts, self._edge_counts = starts[kept, LENGTH], starts[kept, EDGES], columns[EDGES]

    @cached_property
    def chains(self) -> int:
        """The largest number of chains of mentions in a document with its question."""
        return int(self._arrays["chains"].max(initial=0))

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: np.ndarray) -> ReadingBatch:
        """Return the questions with the given indices as one batch.

        Args:
            rows: (B,) indices, B ≥ 1.
        """
        lengths = self.lengths[rows]
        step = np.arange(lengths.max())
        inside = step < lengths[:, None]
        places = np.where(inside, self._starts[rows][:, None] + step, 0)
        words, mentions, chains = (
            _tensor(np.where(inside, self._arrays[name][places], 0)) for name in ("words", "mentions", "chains")
        )
        if self._vocabulary_size is not None:
            words = words.where(words < self._vocabulary_size, UNKNOWN_ID)
        first, counts = self._edge_starts[rows], self._edge_counts[rows]
        owner = np.repeat(np.arange(len(rows)), counts)
        # index of an edge: the first edge of its question plus its position within the question
        number = np.arange(len(owner)) + np.repeat(first - np.cumsum(counts) + counts, counts)
        edges = _tensor(self._arrays["edges"][number])
        return ReadingBatch(
            inputs=words,
            lengths=_tensor(lengths),
            document_lengths=_tensor(self._document_lengths[rows]),
            placeholders=_tensor(self._placeholders[rows]),
            mentions=mentions,
            targets=_tensor(self.answers[rows]),
            edges=place_edges(_tensor(owner), edges, len(rows), len(step), types=self.edge_types),
            chains=chains,
            tasks=_tensor(self._tasks[rows]),
        )


class EncodedQuestions(StoredQuestions):
    """Encoded questions about documents, in memory.

    Args:
        questions: the questions, which are iterated once.
        vocabulary: words, with index 0 for padding and, if there are words outside the vocabulary, `<unk>`. It is in
            lower case if the words of the questions are.
        edge_types: E, number of types of edges in addition to the edge from each step to the next.

    Raises:
        OptionError: `edge_types` is below 1.
        UserError: as `encode`.
    """

    def __init__(self, questions: Iterable[Question], vocabulary: Vocabulary, edge_types: int = 1) -> None:
        check_integer("edge_types", edge_types)
        super().__init__(encode(questions, vocabulary.encode, edge_types), edge_types)


def encode(
    questions: Iterable[Question],
    number: Callable[[list[str], str], Sequence[int] | np.ndarray],
    edge_types: int | None = None,
) -> dict[str, np.ndarray]:
    """Encode questions as arrays, in which they are one after another.

    Args:
        questions: the questions, which are iterated once.
        number: returns the indices of the words of a document and its question, given the words and the name of the
            question, for errors.
        edge_types: number of types of edges; None: any.

    Returns:
        `words`, `mentions` and `chains`, for each step the index of its word, of the candidate that it mentions and of
        the chain that it belongs to; `edges`, (edges, 3) source, target and type; and `sizes`, (n, 7) for each
        question: the number of steps of the document and the question; the number of steps of the document; the step
        of the placeholder, or −1; the index of the answer, or `IGNORED`; the task; the number of candidates; the number
        of edges.

    Raises:
        UserError: a document or a question has no words, a mention, chain or answer does not exist, or an edge is not
            between two of its words. The message is one line with the name of the question.
    """
    pieces: dict[str, list[np.ndarray]] = {name: [np.empty((0, *end), kind)] for name, (kind, end) in ARRAYS.items()}
    for question in questions:
        check_question(question, edge_types or max([1, *(edge.type for edge in question.edges)]))
        words, document = [*question.document, *question.query], len(question.document)
        place = document + question.placeholder if question.placeholder >= 0 else -1
        row = (len(words), document, place, question.answer, question.task, len(question.candidates))
        values: dict[str, Sequence[Any] | np.ndarray] = {
            "words": number(words, question.name),
            "mentions": [*question.mentions, *[0] * len(question.query)],
            "chains": question.chains or [0] * len(words),
            "edges": question.edges,
            "sizes": [(*row, len(question.edges))],
        }
        for name, (kind, end) in ARRAYS.items():
            pieces[name].append(np.array(values[name], dtype=kind).reshape(-1, *end))
    return {name: np.concatenate(own) for name, own in pieces.items()}


def check_question(question: Question, edge_types: int) -> None:
    """Raise `UserError` if a question violates the description of its class."""
    name, words = question.name, len(question.document)
    length = words + len(question.query)
    if not words or not question.query:
        raise UserError(f"{name}: the {'question' if words else 'document'} has no words")
    for field, values, allowed, highest in (
        ("mentions", question.mentions, words, len(question.candidates)),
        ("chains", question.chains, length, length),
    ):
        if len(values) != allowed and (values or field == "mentions"):
            raise UserError(f"{name}: has {len(values)} {field}, and must have one of each of the {allowed} words")
        if values and not 0 <= min(values) <= max(values) <= highest:
            raise UserError(f"{name}: the numbers of {field} must be from 0 to {highest}")
    if question.answer != IGNORED and not 0 <= question.answer < len(question.candidates):
        raise UserError(f"{name}: the answer {question.answer} is none of {len(question.candidates)} candidates")
    if not -1 <= question.placeholder < len(question.query):
        raise UserError(f"{name}: the placeholder {question.placeholder} is none of {len(question.query)} words")
    check_edges(name, question.edges, length, edge_types)


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.astype(np.int64))
