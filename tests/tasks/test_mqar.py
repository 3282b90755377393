"""Multi-query associative recall against a solver that reads sequences token by token."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gyral.core.errors import OptionError
from gyral.tasks.mqar import MqarData
from tests.helpers.running import build_task


def data(**options: Any) -> MqarData:
    sizes = {"batch_size": 2500, "val_batches": 4, "test_batches": 1, "data_seed": 3}
    return MqarData(**{**sizes, **options})


def solve(tokens: list[int], pairs: int, asked: list[int]) -> dict[int, int]:
    """Return the value of the key at each of the steps that ask."""
    values = {tokens[2 * pair]: tokens[2 * pair + 1] for pair in range(pairs)}
    return {step: values[tokens[step]] for step in asked}


@pytest.mark.named("options2-6")
@pytest.mark.parametrize(
    ("options", "pairs"),
    [({}, 4), ({"filler": "random"}, 4), ({"length": 24, "pairs": 6, "vocabulary_size": 14}, 6)],
)
def test_targets_are_the_values_of_the_keys(options: dict[str, Any], pairs: int) -> None:
    made = data(**options)
    values = range(made.vocabulary_size // 2, made.vocabulary_size)
    seen = 0
    for batch in made.loader("val"):
        assert batch.steps is not None
        for tokens, steps, targets in zip(
            *(each.tolist() for each in (batch.inputs, batch.steps, batch.targets)), strict=True
        ):
            keys, given = tokens[0 : 2 * pairs : 2], tokens[1 : 2 * pairs : 2]
            assert len(set(keys)) == len(set(given)) == pairs
            assert set(keys) <= set(range(1, values.start))
            assert set(given) <= set(values)
            assert steps == sorted(steps)
            answers = dict(zip(steps, targets, strict=True))
            assert answers == solve(tokens, pairs, steps)
            assert sorted(tokens[step] for step in answers) == sorted(keys), "each key is asked once"
            assert all(step >= 2 * pairs and step % 2 == 0 for step in answers)
            if made.filler == "zeros":
                assert tokens[2 * pairs :].count(0) == len(tokens) - 3 * pairs
            seen += 1
    assert seen == 10_000


def test_random_filler_is_uniform_in_the_vocabulary() -> None:
    made = data(length=40, pairs=2, vocabulary_size=10, filler="random")
    batch = next(iter(made.loader("val")))
    filler = batch.inputs.scatter(1, batch.steps, -1)[:, 4:]
    filler = filler[filler >= 0]
    shares = np.bincount(filler.numpy(), minlength=10) / len(filler)
    assert shares == pytest.approx(np.full(10, 0.1), abs=0.004)


@pytest.mark.parametrize("power", [0.01, 0.5, 1.0])
def test_gaps_follow_the_power_law(power: float) -> None:
    """With two pairs, the second gap depends on the first one: P(g, h) = p_g · p_h / (1 − p_g)."""
    made = data(length=14, pairs=2, vocabulary_size=20, power=power, val_batches=16)
    weights = np.arange(1, 6) ** (power - 1)
    p = weights / weights.sum()
    expected = np.array([[p[g] * p[h] / (1 - p[g]) if g != h else 0 for h in range(5)] for g in range(5)])
    counts = np.zeros((5, 5))
    for batch in made.loader("val"):
        inputs = batch.inputs.numpy()
        gaps = [(inputs[:, 4::2] == inputs[:, place, None]).argmax(axis=1) for place in (0, 2)]
        np.add.at(counts, tuple(gaps), 1)
    assert counts / counts.sum() == pytest.approx(expected, abs=0.006)


def test_keys_and_values_are_uniform_in_every_place() -> None:
    made = data(length=12, pairs=3, vocabulary_size=12, val_batches=8)
    inputs = np.concatenate([batch.inputs.numpy() for batch in made.loader("val")])
    for place, first, count in ((0, 1, 5), (4, 1, 5), (1, 6, 6), (5, 6, 6)):
        shares = np.bincount(inputs[:, place], minlength=12) / len(inputs)
        assert shares[first : first + count] == pytest.approx(np.full(count, 1 / count), abs=0.015)


def test_further_lengths_have_more_pairs_in_proportion() -> None:
    made = data(test_lengths=[128, 256], batch_size=8)
    assert made.sizes == [(64, 4), (128, 8), (256, 16)], "the published sizes"
    for test, (batch, (length, pairs)) in enumerate(zip(made.loader("test"), made.sizes, strict=True)):
        assert batch.inputs.shape == (8, length)
        assert batch.targets.shape == batch.steps.shape == (8, pairs)
        assert batch.categories.tolist() == [[column == test for column in range(3)]] * 8


def test_a_test_reports_the_accuracies_at_each_length() -> None:
    task = build_task("task=mqar", "model=gru", "model.cell.hidden_size=4", vocabulary_size=20, length=16, pairs=2)
    assert task.model.vocabulary_size == task.model.head.out_features == 20
    assert task.baseline == pytest.approx(np.log(10))
    task = build_task(
        "task=mqar", "model=gru", "model.cell.hidden_size=4", vocabulary_size=20, test_lengths=[8], test_batches=1
    )
    for batch, wrong in zip(task.data.loader("test"), (0, 1), strict=True):
        outputs = 50.0 * F.one_hot(batch.targets, 20).float()
        outputs[:wrong, 0] = outputs[:wrong, 0].roll(1, dims=-1)
        task.metrics.update(outputs, batch, task.loss(outputs, batch))
    results = task.test_results()
    assert (results["accuracy"], results["sequence_accuracy"]) == (1, 1)
    assert results["accuracy_8"] == results["sequence_accuracy_8"] == pytest.approx(63 / 64)


def test_logits_equal_those_of_all_steps_at_the_steps_that_ask() -> None:
    task = build_task("task=mqar", "model=gru", "model.cell.hidden_size=4", vocabulary_size=20, length=16, pairs=3)
    batch = next(iter(task.data.loader("val")))
    logits, everywhere = task(batch), task.model(batch.inputs)[0]
    assert logits.shape == (64, 3, 20)
    for row, steps in enumerate(batch.steps.tolist()):
        assert torch.equal(logits[row], everywhere[row, steps])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"length": 3}, "length=3: must be an integer ≥ 4"),
        ({"pairs": 17}, "pairs=17: must be an integer from 1 to 16"),
        ({"vocabulary_size": 8}, "vocabulary_size=8: must be an integer from 10 to 1000000"),
        ({"vocabulary_size": 11}, "vocabulary_size=11: must be even: half of the tokens are values"),
        (
            {"vocabulary_size": 10, "test_lengths": [128]},
            "vocabulary_size=10: must be an integer from 18 to 1000000",
        ),
        ({"power": 0}, "power=0: must be a finite number > 0"),
        ({"filler": "ones"}, "filler=ones: must be one of zeros, random"),
        ({"test_lengths": [2]}, "test_lengths=[2]: must be increasing integers ≥ 4, such as [5, 7]"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said
