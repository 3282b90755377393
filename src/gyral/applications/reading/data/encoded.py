"""Encoded questions about documents, and batches of them."""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gyral.applications.reading.data.questions import Question, ReadingBatch
from gyral.core.checks import check_integer
from gyral.core.edges import check_edges, place_edges
from gyral.core.errors import UserError
from gyral.data.batching import IGNORED
from gyral.data.vocabulary import Vocabulary


class StoredQuestions:
    """Encoded questions about documents that are stored one after another in arrays of integers.

    Args:
        words, mentions, chains: for each step of all questions, the index of its word, of the candidate that it
            mentions, and of the chain that it belongs to. The first element of each array is padding, 0.
        edges: (edges, 3) source, target and type.
        sizes: (n, 6) for each question: the number of steps of the document and the question; the number of steps of
            the document; the step of the placeholder, or −1; the index of the answer, or `IGNORED`; the task; the
            number of candidates.
        starts: (n,) index of the first step of each question.
        edge_starts, edge_counts: (n,) index of the first edge of each question, and the number of its edges.
        edge_types: E, number of types of edges in addition to the edge from each step to the next.

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
        words: np.ndarray,
        mentions: np.ndarray,
        chains: np.ndarray,
        edges: np.ndarray,
        *,
        sizes: np.ndarray,
        starts: np.ndarray,
        edge_starts: np.ndarray,
        edge_counts: np.ndarray,
        edge_types: int,
    ) -> None:
        self.edge_types = check_integer("edge_types", edge_types)
        self._words, self._mentions, self._chains, self._edges = words, mentions, chains, edges
        columns = sizes.T
        self.lengths, self._document_lengths, self._placeholders, self.answers, self._tasks, self.candidates = columns
        self._starts, self._edge_starts, self._edge_counts = starts, edge_starts, edge_counts

    @cached_property
    def chains(self) -> int:
        """The largest number of chains of mentions in a document with its question."""
        return int(self._chains.max())

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: np.ndarray) -> ReadingBatch:
        """Return the questions with the given indices as one batch.

        Args:
            rows: (B,) indices, B ≥ 1.
        """
        lengths = self.lengths[rows]
        step = np.arange(lengths.max())
        places = np.where(step < lengths[:, None], self._starts[rows][:, None] + step, 0)
        first, counts = self._edge_starts[rows], self._edge_counts[rows]
        owner = np.repeat(np.arange(len(rows)), counts)
        # index of an edge: the first edge of its question plus its position within the question
        number = np.arange(len(owner)) + np.repeat(first - np.cumsum(counts) + counts, counts)
        return ReadingBatch(
            inputs=_tensor(self._words[places]),
            lengths=_tensor(lengths),
            document_lengths=_tensor(self._document_lengths[rows]),
            placeholders=_tensor(self._placeholders[rows]),
            mentions=_tensor(self._mentions[places]),
            targets=_tensor(self.answers[rows]),
            edges=place_edges(
                _tensor(owner), _tensor(self._edges[number]), len(rows), len(step), types=self.edge_types
            ),
            chains=_tensor(self._chains[places]),
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
        UserError: a document or a question has no words, a mention, chain or answer does not exist, or an edge is not
            between two of its words. The message is one line with the name of the question.
    """

    def __init__(self, questions: Iterable[Question], vocabulary: Vocabulary, edge_types: int = 1) -> None:
        check_integer("edge_types", edge_types)
        words, mentions, chains, edges = (list[np.ndarray]() for _ in range(4))
        rows = []
        for question in questions:
            check_question(question, edge_types)
            size = sizes_of(question)
            words.append(vocabulary.encode([*question.document, *question.query], question.name))
            mentions.append(_padded(question.mentions, size[0]))
            chains.append(_padded(question.chains, size[0]))
            edges.append(np.array(question.edges, dtype=np.int32).reshape(-1, 3))
            rows.append(size)
        sizes = np.array(rows, dtype=np.int64).reshape(-1, 6)
        edge_counts = np.array([len(own) for own in edges], dtype=np.int64)
        super().__init__(
            # one array for all questions; the first element of each is padding
            np.concatenate([np.zeros(1, vocabulary.dtype), *words]),
            np.concatenate([np.zeros(1, np.int32), *mentions]),
            np.concatenate([np.zeros(1, np.int32), *chains]),
            np.concatenate([np.empty((0, 3), np.int32), *edges]),
            sizes=sizes,
            starts=1 + np.cumsum(sizes[:, 0]) - sizes[:, 0],
            edge_starts=np.cumsum(edge_counts) - edge_counts,
            edge_counts=edge_counts,
            edge_types=edge_types,
        )


def sizes_of(question: Question) -> tuple[int, ...]:
    """Return the row of a question in the sizes of `StoredQuestions`."""
    words = len(question.document)
    place = words + question.placeholder if question.placeholder >= 0 else -1
    return words + len(question.query), words, place, question.answer, question.task, len(question.candidates)


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


def _padded(values: Sequence[int], length: int) -> np.ndarray:
    found = np.zeros(length, dtype=np.int32)
    found[: len(values)] = values
    return found


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.astype(np.int64))
