"""Encoded questions about documents, and batches of them."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from gyral.applications.reading.data.encoded import EncodedQuestions
from gyral.applications.reading.data.questions import Question, ReadingBatch
from gyral.core.edges import Edge
from gyral.core.errors import OptionError, UserError
from gyral.data.batching import IGNORED, BucketedBatches, SortedBatches
from gyral.data.vocabulary import Vocabulary

VOCABULARY = Vocabulary("word", ["<pad>", "<unk>", "ann", "bob", "met", "who", "_", "?"])
MET = Question(
    name="met",
    document=("ann", "met", "bob"),
    query=("ann", "?"),
    candidates=("ann", "bob"),
    mentions=(1, 0, 2),
    answer=1,
    edges=(Edge(0, 3), Edge(0, 2, 2), Edge(1, 2, 2)),
    chains=(1, 0, 2, 1, 0),
    task=7,
)
GAP = Question("gap", ("zoe", "met"), ("who", "met", "_", "?"), ("zoe",), (1, 0), IGNORED, placeholder=2)
SHORT = Question("short", ("bob",), ("?",), ("bob",), (1,), 0, edges=(Edge(0, 1),))
QUESTIONS = [MET, GAP, SHORT]


def made(*questions: Question, edge_types: int = 2) -> EncodedQuestions:
    return EncodedQuestions(iter(questions or QUESTIONS), VOCABULARY, edge_types)


def same(left: ReadingBatch, right: ReadingBatch) -> bool:
    return all(map(torch.equal, tree_leaves(left), tree_leaves(right)))


def test_a_batch() -> None:
    encoded = made()
    assert (len(encoded), encoded.lengths.tolist(), encoded.chains) == (3, [5, 6, 2], 2)
    assert encoded.candidates.tolist() == [2, 1, 1]
    batch = encoded.batch(np.array([0, 1]))
    assert batch.inputs.tolist() == [[2, 4, 3, 2, 7, 0], [1, 4, 5, 4, 6, 7]]
    assert batch.lengths.tolist() == [5, 6]
    assert batch.document_lengths.tolist() == [3, 2]
    assert batch.placeholders.tolist() == [-1, 4]
    assert batch.mentions.tolist() == [[1, 0, 2, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    assert batch.chains.tolist() == [[1, 0, 2, 1, 0, 0], [0] * 6]
    assert batch.targets.tolist() == [1, IGNORED]
    assert batch.tasks.tolist() == [7, 0]
    assert {tensor.dtype for tensor in tree_leaves(batch)} == {torch.int64}


def test_edges_are_distances_by_their_type() -> None:
    earlier, later = made().batch(np.array([2, 0])).edges
    assert earlier.shape == (2, 5, 2, 2)
    assert later is not None
    assert [(*place, earlier[tuple(place)].item()) for place in earlier.nonzero().tolist()] == [
        (0, 1, 0, 0, 1),
        (1, 2, 1, 0, 2),
        (1, 2, 1, 1, 1),
        (1, 3, 0, 0, 3),
    ]
    assert [(*place, later[tuple(place)].item()) for place in later.nonzero().tolist()] == [
        (0, 0, 0, 0, 1),
        (1, 0, 0, 0, 3),
        (1, 0, 1, 0, 2),
        (1, 1, 1, 0, 1),
    ]
    assert made(GAP).batch(np.array([0])).edges.earlier.shape == (1, 6, 2, 1)


@pytest.mark.parametrize("batches", [SortedBatches, BucketedBatches])
def test_batches_of_similar_lengths(batches: Any) -> None:
    further = {"seed": 1, "length": 2} if batches is BucketedBatches else {}
    found = list(batches(made(), 2, **further))
    assert sorted(length for batch in found for length in batch.lengths.tolist()) == [2, 5, 6]
    assert {batch.inputs.shape[1] for batch in found} == {5, 6}  # the two short ones are together
    again = list(batches(made(), 2, **further))
    assert all(map(same, found, again))


def test_an_empty_list_of_questions_is_allowed() -> None:
    empty = EncodedQuestions([], VOCABULARY)
    assert (len(empty), empty.lengths.shape, empty.chains) == (0, (0,), 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"document": (), "mentions": ()}, "the document has no words"),
        ({"query": ()}, "the question has no words"),
        ({"mentions": (1, 0)}, "has 2 mentions, and must have one of each of the 3 words"),
        ({"mentions": (3, 0, 0)}, "the numbers of mentions must be from 0 to 2"),
        ({"chains": (1,)}, "has 1 chains, and must have one of each of the 5 words"),
        ({"chains": (-1, 0, 0, 0, 0)}, "the numbers of chains must be from 0 to 5"),
        ({"answer": 2}, "the answer 2 is none of 2 candidates"),
        ({"placeholder": 2}, "the placeholder 2 is none of 2 words"),
        ({"edges": (Edge(3, 0),)}, "edge from step 3 to step 0 of type 1: the source must be before the target"),
        ({"edges": (Edge(0, 5),)}, "edge from step 0 to step 5 of type 1: the steps must be from 0 to 4"),
        ({"edges": (Edge(0, 4, 3),)}, "edge from step 0 to step 4 of type 3: the type must be from 1 to 2"),
    ],
)
def test_an_invalid_question_is_refused_with_its_name(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError) as raised:
        made(GAP, MET._replace(**change))
    assert str(raised.value) == f"met: {reason}"


def test_words_outside_the_vocabulary_are_refused_by_name_if_it_has_no_unknown() -> None:
    with pytest.raises(UserError, match=r"^met: 'bob' at position 2"):
        EncodedQuestions([MET], Vocabulary("word", ["<pad>", "ann", "met"]), 2)


def test_at_least_one_edge_type_is_required() -> None:
    with pytest.raises(OptionError, match=r"^edge_types=0: must be an integer ≥ 1$"):
        made(edge_types=0)
