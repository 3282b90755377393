"""Questions about documents, and batches of them."""

from typing import NamedTuple

from torch import Tensor

from gyral.core.edges import Edge, Edges


class Question(NamedTuple):
    """A question of m words about a document of n words.

    Attributes:
        name: name of the question, for messages.
        document: the words of the document.
        query: the words of the question.
        candidates: the possible answers.
        mentions: n integers: the candidate that each word mentions, from 1; 0: none.
        answer: index of the answer among the candidates; `IGNORED` if it is not a candidate.
        edges: edges between words, whose indices from 0 to n + m − 1 count the document and then the question.
        chains: n + m integers: the chain of mentions that each word belongs to, from 1; 0: none.
        placeholder: the word of the query that the answer replaces, from 0; −1: none.
        task: number of a task within the data, such as the 20 tasks of bAbI.
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
        lengths: (B,) number of steps of the document and the question.
        document_lengths: (B,) number of steps of the document.
        placeholders: (B,) step of the placeholder, whose state represents the question; −1: none.
        mentions: (B, T) the candidate that each step mentions, from 1; 0: none. 0 within the question.
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
