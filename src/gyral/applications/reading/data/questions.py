"""Questions about documents, and batches of them."""

from typing import NamedTuple

from torch import Tensor

from gyral.core.edges import Edge, Edges


class Question(NamedTuple):
    """A question about a document of n words; the question has m words and is read after the document.

    Attributes:
        name: Of the document and the question, for messages.
        document: The words of the document.
        query: The words of the question.
        candidates: The possible answers.
        mentions: n integers: the candidate that is mentioned at each word, counted from 1; 0: none.
        answer: Index of the answer among the candidates; `IGNORED` if it is none of them.
        edges: Between words, from 0 to n + m − 1: those of the document, then those of the question.
        chains: n + m integers: the chain of mentions that each word belongs to, from 1; 0: none.
        placeholder: The word of the query that the answer replaces, from 0; −1: none.
        task: Number of a task within the data, such as that of bAbI.
    """

    name: str
    document: tuple[str, ...]
    query: tuple[str, ...]
    candidates: tuple[str, ...]
    mentions: tuple[int, ...]
    answer: int
    edges: tuple[Edge, ...] = ()
    chains: tuple[int, ...] = ()
    placeholder: int = -1
    task: int = 0


class ReadingBatch(NamedTuple):
    """A batch of B documents, each followed by its question, padded at the end with `PADDING_ID` to T steps.

    Attributes:
        inputs: (B, T) word indices of the document and then of the question.
        lengths: (B,) number of steps of document and question together.
        document_lengths: (B,) number of steps of the document.
        placeholders: (B,) the step whose state stands for the question: that of the placeholder; −1: none.
        mentions: (B, T) the candidate that is mentioned at each step, from 1; 0: none, and within the question.
        targets: (B,) index of the answer among the candidates, or `IGNORED`, which counts as wrong.
        edges: `Edges` with batch-first leaves (B, T, E, D).
        chains: (B, T) the chain of mentions that each step belongs to, from 1; 0: none.
        tasks: (B,) numbers of the tasks.
    """

    inputs: Tensor
    lengths: Tensor
    document_lengths: Tensor
    placeholders: Tensor
    mentions: Tensor
    targets: Tensor
    edges: Edges
    chains: Tensor
    tasks: Tensor
