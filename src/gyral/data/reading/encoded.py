"""Encoded questions about documents, and batches of them."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.edges import check_edges, place_edges
from gyral.core.errors import UserError
from gyral.data.batching import IGNORED
from gyral.data.reading.questions import Question, ReadingBatch
from gyral.data.vocabulary import Vocabulary


class EncodedQuestions:
    """Encoded questions about documents, in memory.

    Args:
        questions: the questions. They are read once, and their words are not kept.
        vocabulary: words, with index 0 for padding and, if there are words outside the vocabulary, `<unk>`. It is in
            lower case if the words of the questions are.
        edge_types: E, number of types of edges beside the edge from each step to the next.

    Attributes:
        lengths: (n,) number of steps of each question with its document.
        candidates: (n,) number of candidates of each question.
        chains: the most chains of mentions in a question with its document.
        edge_types: E.

    Raises:
        OptionError: `edge_types` is below 1.
        UserError: a document or a question has no words, a mention, chain or answer does not exist, or an edge is not
            between two of its words. The message is one line with the name of the question.
    """

    def __init__(self, questions: Iterable[Question], vocabulary: Vocabulary, edge_types: int = 1) -> None:
        self.edge_types = check_integer("edge_types", edge_types)
        words, mentions, chains, edges = (list[np.ndarray]() for _ in range(4))
        sizes = []
        for question in questions:
            check_question(question, self.edge_types)
            length = len(question.document) + len(question.query)
            words.append(vocabulary.encode([*question.document, *question.query], question.name))
            mentions.append(_padded(question.mentions, length))
            chains.append(_padded(question.chains, length))
            edges.append(np.array(question.edges, dtype=np.int32).reshape(-1, 3))
            sizes.append(
                (
                    length,
                    len(question.document),
                    len(question.document) + question.placeholder if question.placeholder >= 0 else -1,
                    question.answer,
                    question.task,
                    len(question.candidates),
                )
            )
        columns = np.array(sizes, dtype=np.int64).reshape(-1, 6).T
        self.lengths, self._document_lengths, self._placeholders, self._answers, self._tasks, self.candidates = columns
        # one array for all questions; the first element of each is padding
        self._words = np.concatenate([np.zeros(1, vocabulary.dtype), *words])
        self._mentions = np.concatenate([np.zeros(1, np.int32), *mentions])
        self._chains = np.concatenate([np.zeros(1, np.int32), *chains])
        self._starts = 1 + np.cumsum(self.lengths) - self.lengths
        self._edges = np.concatenate([np.empty((0, 3), np.int32), *edges])
        self._edge_bounds = np.cumsum([0, *map(len, edges)])
        self.chains = int(self._chains.max())

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
        first, counts = self._edge_bounds[rows], self._edge_bounds[rows + 1] - self._edge_bounds[rows]
        owner = np.repeat(np.arange(len(rows)), counts)
        # the number of an edge: the first edge of its question, plus its place among those of the question
        number = np.arange(len(owner)) + np.repeat(first - np.cumsum(counts) + counts, counts)
        return ReadingBatch(
            inputs=_tensor(self._words[places]),
            lengths=_tensor(lengths),
            document_lengths=_tensor(self._document_lengths[rows]),
            placeholders=_tensor(self._placeholders[rows]),
            mentions=_tensor(self._mentions[places]),
            targets=_tensor(self._answers[rows]),
            edges=place_edges(
                _tensor(owner), _tensor(self._edges[number]), len(rows), len(step), types=self.edge_types
            ),
            chains=_tensor(self._chains[places]),
            tasks=_tensor(self._tasks[rows]),
        )


def check_question(question: Question, edge_types: int) -> None:
    """Raise `UserError` if a question is not as its class says."""
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
