"""The adding problem: marks, sum, and rendering."""

import pytest
import torch

from gyral.core.errors import OptionError
from gyral.tasks.adding import BASELINE, AddingData
from tests.helpers.running import build_task

RUN = ("model=lstm", "optimizer=adam")  # of small_runs.py in tests/faults


def data(length: int = 9, size: int = 2000) -> AddingData:
    return AddingData(length=length, batch_size=size, train_size=size, val_size=1, test_size=1, data_seed=3)


@pytest.mark.parametrize("length", [2, 9, 10])
def test_one_number_of_each_half_is_marked_and_their_sum_is_the_target(length: int) -> None:
    batch = next(iter(data(length).loader("train")))
    numbers, marks = batch.inputs.unbind(dim=-1)
    half = length // 2
    assert (marks[:, :half].sum(dim=1) == 1).all()
    assert (marks[:, half:].sum(dim=1) == 1).all()
    assert set(marks.unique().tolist()) <= {0, 1}
    assert (marks.sum(dim=0) > 0).all(), "each step is marked in some sequence"
    assert 0 <= numbers.min() < 0.01
    assert 0.99 < numbers.max() < 1
    torch.testing.assert_close(batch.targets[:, 0], numbers[marks == 1].view(-1, 2).sum(dim=1))


def test_baseline_is_the_variance_of_the_sum() -> None:
    targets = next(iter(data(size=100_000).loader("train"))).targets
    assert targets.var().item() == pytest.approx(BASELINE, rel=0.02)
    assert round(BASELINE, 3) == 0.167


def test_length_below_two_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^length=1: must be an integer ≥ 2$"):
        data(length=1)


def test_render_shows_the_marked_numbers_and_the_ends() -> None:
    task = build_task("task=adding", "model=gru", length=20, train_size=50, val_size=2, test_size=1)
    batch = next(iter(task.data.loader("val")))
    batch.inputs[0, :, 0] = torch.arange(20) / 100
    batch.inputs[0, :, 1] = 0
    batch.inputs[0, [5, 18], 1] = 1
    batch.targets[0] = 0.23
    assert task.render(batch, torch.tensor([[-0.117]]), 0).splitlines() == [
        "input       0.00 0.01 0.02 …2… 0.05* …11… 0.17 0.18* 0.19",
        "target      0.23",
        "prediction  -0.12",
    ]
