"""Batches of questions: content, padding without effect, lengths, orders, resuming."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch

from gyral.applications.babi.batches import LEVELS, EncodedQuestions, QuestionBatch
from gyral.cells.gru import GRUCell
from gyral.core.errors import OptionError
from gyral.data import batching
from gyral.data.babi.entities import EntityMentions
from gyral.data.babi.stories import Question, Story, questions
from gyral.data.babi.synthetic import generate
from gyral.data.batching import IGNORED, BucketedBatches, SortedBatches
from gyral.data.vocabulary import PADDING_ID, Vocabulary
from gyral.nn.recurrent import Recurrent

VOCABULARY = Vocabulary("word", ["<pad>", "<unk>", ".", "?", "ann", "bob", "sat", "ran", "far", "who", "where"])
CLASSES = ("ann", "far")
SAT, RAN_FAR = ("Ann", "sat", "."), ("Bob", "ran", "far", ".")
STORIES: list[Story] = [
    [
        Question(3, (SAT,), ("Who", "sat", "?"), "ann", (0,)),
        Question(3, (SAT, RAN_FAR), ("Where", "ran", "Bob", "?"), "far", (1,)),
    ],
    [Question(5, (), ("Who", "jumped", "?"), "zoe", ())],
]


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    return generate(2, 333, seed=1)


def encoded(stories: list[Story], level: str) -> EncodedQuestions:
    asked = list(questions(stories))
    words = {word.lower() for question in asked for sentence in (*question.story, question.words) for word in sentence}
    vocabulary = Vocabulary("word", ["<pad>", "<unk>", *sorted(words)])
    return EncodedQuestions(stories, vocabulary, sorted({question.answer for question in asked}), level)


def same(left: QuestionBatch, right: QuestionBatch) -> bool:
    return left.edges is right.edges is None and all(map(torch.equal, left[:4], right[:4]))


def test_a_batch_of_words() -> None:
    batch = EncodedQuestions(STORIES, VOCABULARY, CLASSES, "word").batch(np.arange(3))
    assert batch.inputs.tolist() == [
        [4, 6, 2, 9, 6, 3, 0, 0, 0, 0, 0],
        [4, 6, 2, 5, 7, 8, 2, 10, 7, 5, 3],
        [9, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert batch.lengths.tolist() == [6, 11, 3]
    assert batch.answers.tolist() == [0, 1, IGNORED]
    assert batch.tasks.tolist() == [3, 3, 5]
    assert {tensor.dtype for tensor in batch[:4]} == {torch.int64}
    assert batch.edges is None


def test_a_batch_of_sentences() -> None:
    made = EncodedQuestions(STORIES, VOCABULARY, CLASSES, "sentence")
    batch = made.batch(np.array([2, 1]))
    assert batch.inputs.tolist() == [
        [[9, 1, 3, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
        [[4, 6, 2, 0], [5, 7, 8, 2], [10, 7, 5, 3]],
    ]
    assert batch.lengths.tolist() == [1, 3]
    assert batch.answers.tolist() == [IGNORED, 1]
    assert batch.tasks.tolist() == [5, 3]
    assert made.batch(np.array([2])).inputs.tolist() == [[[9, 1, 3]]]


def test_edges_join_mentions_of_words_and_of_sentences() -> None:
    sat = ("Mary", "met", "John", "."), ("John", "met", "Mary", "."), ("Bill", "sat", ".")
    story = [
        Question(1, sat[:1], ("Who", "?"), "Mary", ()),
        Question(1, sat, ("Who", "met", "Mary", "?"), "John", (0,)),
    ]
    words, sentences = (
        EncodedQuestions([story], VOCABULARY, CLASSES, level, EntityMentions.of("names")).batch(np.arange(2))
        for level in LEVELS
    )
    assert words.edges is not None
    assert words.edges.earlier.shape == (2, 15, 1, 1)
    assert not words.edges.earlier[0].any()
    assert words.edges.earlier[1].flatten().tolist() == [0, 0, 0, 0, 2, 0, 6, 0, 0, 0, 0, 0, 0, 7, 0]
    assert sentences.edges is not None
    assert sentences.edges.earlier.flatten().tolist() == [0, 0, 0, 0, 0, 1, 0, 2]


@pytest.mark.parametrize("level", LEVELS)
def test_rows_contain_only_their_stories(level: str, stories: list[Story]) -> None:
    made = encoded(stories, level)
    batch = made.batch(np.arange(len(made)))
    assert len(made) == 333
    assert int(batch.lengths.max()) == batch.inputs.shape[1]
    words = batch.inputs if level == "word" else batch.inputs.flatten(1)
    counts = [sum(map(len, question.story)) + len(question.words) for question in questions(stories)]
    assert words.ne(PADDING_ID).sum(1).tolist() == counts
    steps = torch.arange(batch.inputs.shape[1]) < batch.lengths[:, None]
    assert torch.equal(batch.inputs.reshape(*steps.shape, -1).ne(PADDING_ID).any(-1), steps)
    alone = [made.batch(np.array([row])) for row in range(0, 333, 20)]
    for row, one in zip(range(0, 333, 20), alone, strict=True):
        found = batch.inputs[row, : batch.lengths[row]]
        if level == "sentence":
            found = found[:, : one.inputs.shape[2]]
        assert torch.equal(found, one.inputs[0])


@pytest.mark.parametrize("level", LEVELS)
def test_padding_does_not_change_what_a_network_answers(level: str, stories: list[Story]) -> None:
    made = encoded(stories, level)
    torch.manual_seed(1)
    embedding = torch.nn.Embedding(100, 4, padding_idx=PADDING_ID, dtype=torch.float64)
    network = Recurrent(partial(GRUCell, hidden_size=5), 4, batch_first=True, backend="reference").double()

    def last(rows: np.ndarray) -> torch.Tensor:
        batch = made.batch(rows)
        embedded = embedding(batch.inputs)
        if level == "sentence":
            embedded = embedded.sum(2)
        outputs, _ = network(embedded, lengths=batch.lengths)
        return outputs[torch.arange(len(rows)), batch.lengths - 1]

    rows = np.array([0, 4, 200, 332])
    together = last(rows)
    for index, row in enumerate(rows):
        torch.testing.assert_close(together[index], last(np.array([row]))[0])


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^level=char: must be one of word, sentence$"):
        EncodedQuestions(STORIES, VOCABULARY, CLASSES, "char")


@pytest.mark.parametrize("level", LEVELS)
def test_evaluation_reads_every_question_once_the_shortest_first(level: str, stories: list[Story]) -> None:
    made = encoded(stories, level)
    batches = SortedBatches(made, 32)
    served = list(batches)
    assert len(batches) == len(served) == 11
    assert [len(batch.lengths) for batch in served] == [32] * 10 + [13]
    lengths = torch.cat([batch.lengths for batch in served])
    assert torch.equal(lengths, lengths.sort().values)
    assert sorted(batches.order) == list(range(333))
    answers = torch.cat([batch.answers for batch in served])
    assert torch.equal(answers, made.batch(batches.order).answers)


class Recorder(EncodedQuestions):
    """Keeps the rows that it makes batches of."""

    def __init__(self, stories: list[Story]) -> None:
        super().__init__(stories, Vocabulary("word", ["<pad>", "<unk>"]), (), "word")
        self.rows: list[list[int]] = []

    def batch(self, rows: np.ndarray) -> QuestionBatch:
        self.rows.append(rows.tolist())
        return super().batch(rows)


def rows_of(stories: list[Story], seed: int, length: int) -> list[list[int]]:
    recorder = Recorder(stories)
    list(BucketedBatches(recorder, 32, seed=seed, length=length))
    return recorder.rows


def test_a_pass_of_training_has_every_question_once_in_a_new_order(stories: list[Story]) -> None:
    rows = rows_of(stories, 1, 22)
    first, second = (list(itertools.chain(*rows[start : start + 11])) for start in (0, 11))
    assert sorted(first) == sorted(second) == list(range(333))
    assert first != second
    assert sorted(map(len, rows[:11])) == [13] + [32] * 10
    assert rows == rows_of(stories, 1, 22)
    assert rows != rows_of(stories, 2, 22)


def test_batches_of_training_are_of_similar_lengths_and_shuffled(
    stories: list[Story], monkeypatch: pytest.MonkeyPatch
) -> None:
    def padding() -> float:
        stream = BucketedBatches(encoded(stories, "word"), 32, seed=1, length=11)
        served = [(batch.lengths.sum().item(), batch.inputs.numel(), batch.lengths.float().mean()) for batch in stream]
        means = [mean for *_, mean in served]
        assert means != sorted(means)
        return 1 - sum(used for used, *_ in served) / sum(cells for _, cells, _ in served)

    sorted_together = padding()
    monkeypatch.setattr(batching, "POOL", 1)
    assert 3 * sorted_together < padding()


@pytest.mark.parametrize("served", [0, 3, 11, 14])
def test_training_resumes_at_the_saved_position(stories: list[Story], served: int) -> None:
    def stream() -> BucketedBatches:
        return BucketedBatches(encoded(stories, "sentence"), 32, seed=1, length=25)

    whole = list(stream())
    stopped = stream()
    head = list(itertools.islice(stopped, served))
    assert all(map(same, head, whole))
    state = stopped.state_dict()
    assert state == {"position": served}
    resumed = stream()
    resumed.load_state_dict(state)
    for tail in (list(resumed), list(stopped)):
        assert len(tail) == 25 - served
        assert all(map(same, tail, whole[served:]))


@pytest.mark.parametrize("batch_size", [0, 2.0, "all"])
def test_a_wrong_batch_size_is_refused(batch_size: int) -> None:
    made = EncodedQuestions(STORIES, VOCABULARY, CLASSES, "word")
    for make in (SortedBatches, partial(BucketedBatches, seed=1, length=1)):
        with pytest.raises(OptionError, match=rf"^batch_size={batch_size}: must be an integer ≥ 1$"):
            make(made, batch_size)


def test_a_batch_may_be_larger_than_the_data() -> None:
    made = EncodedQuestions(STORIES, VOCABULARY, CLASSES, "word")
    (batch,) = BucketedBatches(made, 10, seed=1, length=1)
    assert sorted(batch.lengths.tolist()) == [3, 6, 11]
