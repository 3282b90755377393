"""Associative recall against an independent slow construction, sequence by sequence."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.tasks.recall import RecallData, informed_guess
from tests.helpers.running import build_task

RUN = ("scheduler=plateau", "scheduler.patience=1")  # of small_runs.py in tests/faults


def data(**options: int) -> RecallData:
    sizes = {"batch_size": 8, "train_size": 300, "val_size": 8, "test_size": 8, "data_seed": 3}
    return RecallData(**{"length": 8, **sizes, **options})


@pytest.mark.parametrize("length", [2, 8, 30, 50, 400])
def test_layout(length: int) -> None:
    made = data(length=length)
    batch = made.assemble(made.rows("train"))
    pairs, question = length // 2, length // 2 + 10
    assert batch.inputs.shape == (300, length + 3)
    for row in range(0, 300, 7):
        tokens = batch.inputs[row].tolist()
        letters, digits, asked = tokens[0:length:2], tokens[1:length:2], tokens[-1]
        assert tokens[length : length + 2] == [question, question]
        assert sorted(letters) == list(range(pairs)), "a letter is repeated or missing"
        assert all(pairs <= digit < pairs + 10 for digit in digits)
        answer = dict(zip(letters, digits, strict=True))[asked] - pairs
        assert batch.targets[row].tolist() == [IGNORED] * (length + 2) + [answer]
        assert batch.answers[row].tolist() == [False] * (length + 2) + [True]


@pytest.mark.parametrize("length", [30, 50])
def test_sizes_equal_the_paper(length: int) -> None:
    built = build_task("task=recall", "model=gru", length=length, val_size=2)
    batch = next(iter(built.data.loader("val")))
    assert batch.inputs.shape == (2, length + 3)
    assert built.model.vocabulary_size == length // 2 + 10 + 1
    assert built.model.head.out_features == 10


def test_letters_digits_and_questions_are_uniform() -> None:
    made = data(train_size=40_000)
    batch = made.assemble(made.rows("train"))
    places = (batch.inputs[:, :8:2] == batch.inputs[:, -1:]).long().argmax(dim=1)
    for drawn in (batch.inputs[:, 0], batch.inputs[:, 3] - 4, batch.inputs[:, -1], batch.targets[:, -1], places):
        counts = torch.bincount(drawn)
        degrees = len(counts) - 1
        expected = 40_000 / len(counts)
        # chi-square: its mean is the degrees of freedom, its deviation √(2 · degrees)
        assert ((counts - expected) ** 2 / expected).sum() < degrees + 5 * (2 * degrees) ** 0.5


def test_a_test_also_counts_the_questions_about_the_first_pair() -> None:
    built = build_task("task=recall", "model=gru", length=8)
    batch = built.data.assemble(torch.tensor([[0, 9, 1, 8, 2, 7, 3, 6, 14, 14, asked, 5] for asked in (0, 1, 0, 3)]))
    logits = F.one_hot(torch.full(batch.targets.shape, 5), 10).float()
    logits[0] = F.one_hot(torch.tensor(4), 10)  # wrong, about the first pair
    built.metrics.update(logits, batch, torch.tensor(1.0))
    found = built.test_results()
    assert (found["accuracy"], found["accuracy_first_pair"]) == (0.75, 0.5)


def test_answer_is_below_the_question() -> None:
    for length in (8, 60):  # letters, and names for more symbols than letters
        built = build_task("task=recall", "model=gru", length=length)
        batch = built.data.assemble(built.data.rows("val")[:1])
        source, target, prediction = built.render(batch, batch.targets).splitlines()
        assert prediction.removeprefix("prediction") == target.removeprefix("target    ")
        column = len(target) - 1
        assert target[column] == str(batch.targets[0, -1].item())
        assert source[:column].rstrip().endswith("? ?")
        asked = source[column:]
        assert source[column - 1] == " "
        words = source.split()[1:]
        assert words[-1] == asked
        assert words[words.index(asked) + 1] == target[column]


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("length", 7, "even, since letters and digits come in pairs"),
        ("length", 0, "an integer from 2 to 400"),
        ("length", 402, "an integer from 2 to 400"),
        ("length", 8.0, "an integer from 2 to 400"),
        ("val_size", 0, "an integer ≥ 1"),
    ],
)
def test_options_out_of_bounds_are_refused(option: str, value: int, allowed: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**{option: value})
    assert str(raised.value) == f"{option}={value}: must be {allowed}"


@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_informed_guess_is_the_share_of_the_most_frequent_digit(pairs: int) -> None:
    rows = np.array([*product(range(10), repeat=pairs)])
    counts = (rows[:, :, None] == np.arange(10)).sum(axis=1)
    assert informed_guess(pairs) == pytest.approx(counts.max(axis=1).mean() / pairs)
