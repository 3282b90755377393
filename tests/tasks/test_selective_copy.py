"""Selective copying against a solver that reads sequences token by token."""

from typing import Any

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.tasks.selective_copy import SelectiveCopyData
from tests.helpers.running import build_task


def data(**options: Any) -> SelectiveCopyData:
    sizes = {"batch_size": 2500, "val_batches": 4, "test_batches": 1, "data_seed": 3}
    return SelectiveCopyData(**{"length": 64, **sizes, **options})


@pytest.mark.parametrize("form", ["mamba", "mad"])
@pytest.mark.parametrize(
    "options", [{}, {"length": 33}, {"length": 20, "recalled": 4, "vocabulary_size": 9}], ids=["64", "33", "20"]
)
def test_targets_are_the_data_tokens_in_order(form: str, options: dict[str, Any]) -> None:
    made = data(form=form, val_batches=1, **options)
    noise, marker, recalled = 0, made.vocabulary_size - 1, made.recalled
    answering = [marker] * recalled if form == "mamba" else [marker] + [noise] * recalled
    seen = 0
    for batch in made.loader("val"):
        for tokens, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            assert tokens[-len(answering) :] == answering
            read = tokens[: -len(answering)]
            assert marker not in read
            remembered = [token for token in read if token != noise]
            assert targets == [IGNORED] * (len(tokens) - recalled) + [token - 1 for token in remembered]
            assert len(tokens) == made.lengths[0]
            if form == "mad":
                assert read[-1] != noise
            seen += 1
    assert seen == 2500


def places(form: str) -> np.ndarray:
    """Return the places of 2 data tokens in 5 steps, (n, 2)."""
    made = data(form=form, length=8 if form == "mad" else 7, recalled=2, val_batches=8)
    inputs = np.concatenate([batch.inputs.numpy() for batch in made.loader("val")])
    return inputs[:, :5].nonzero()[1].reshape(-1, 2)


def test_places_are_uniform_or_noise_is_before_random_data_tokens() -> None:
    found = places("mamba")
    pairs = np.bincount(found[:, 0] * 5 + found[:, 1], minlength=25) / len(found)
    assert pairs[pairs > 0] == pytest.approx(np.full(10, 0.1), abs=0.01)
    found = places("mad")
    assert set(found[:, 1]) == {4}
    # three noise tokens, each before the first or the second data token
    assert np.bincount(found[:, 0]) / len(found) == pytest.approx(np.array([1, 3, 3, 1]) / 8, abs=0.015)


def test_data_tokens_are_uniform() -> None:
    made = data(length=8, recalled=3, vocabulary_size=6, val_batches=8)
    targets = np.concatenate([batch.targets[:, -3:].numpy() for batch in made.loader("val")])
    for column in targets.T:
        assert np.bincount(column) / len(column) == pytest.approx(np.full(4, 0.25), abs=0.015)


def test_lengths_and_sizes() -> None:
    made = data(test_lengths=[100, 128], batch_size=8)
    shapes = [batch.inputs.shape for batch in made.loader("test")]
    assert shapes == [(8, 64), (8, 100), (8, 128)]
    task = build_task("task=selective_copy", "model=gru", "model.cell.hidden_size=4", batch_size=2)
    assert next(iter(task.data.loader("val"))).inputs.shape == (2, 4096)
    assert (task.model.vocabulary_size, task.model.head.out_features) == (16, 14)
    assert task.baseline == pytest.approx(np.log(14))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"length": 31}, "length=31: must be an integer ≥ 32"),
        ({"length": 32, "form": "mad"}, "length=32: must be an integer ≥ 33"),
        ({"recalled": 0}, "recalled=0: must be an integer ≥ 1"),
        ({"vocabulary_size": 3}, "vocabulary_size=3: must be an integer from 4 to 1000000"),
        ({"form": "s4"}, "form=s4: must be one of mamba, mad"),
        ({"test_lengths": [16]}, "test_lengths=[16]: must be increasing integers ≥ 32, such as [33, 35]"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said
