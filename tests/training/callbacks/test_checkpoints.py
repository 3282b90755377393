"""When the last and the best checkpoint are written, and what they hold."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError
from gyral.training.callbacks.checkpoints import Checkpoints
from gyral.training.callbacks.finite_guard import FiniteGuard, NonFiniteError
from tests.helpers.recorder import Recorder


@pytest.mark.parametrize(("mode", "best"), [("min", [10, 20, 40]), ("max", [10, 30])])
def test_best_checkpoint_follows_the_tasks_metric_and_mode(task: Any, mode: str, best: list[int]) -> None:
    task.mode = mode
    scores = {10: 0.5, 20: 0.4, 30: 0.7, 40: 0.3, 50: 0.3}
    saved = Recorder(task).take_steps(Checkpoints(every=1000), 50, scores)
    assert [step for name, step in saved if name == "best.ckpt"] == best


def test_last_checkpoint_is_written_on_time_and_at_the_end(task: Any) -> None:
    task.mode = "min"
    recorder = Recorder(task, max_steps=25)
    saved = recorder.take_steps(Checkpoints(every=4), 25, {10: 0.5, 20: 0.4})
    assert [step for name, step in saved if name == "last.ckpt"] == [4, 8, 12, 16, 20, 24, 25]
    # where a validation is due the last checkpoint holds its outcome: it is written once, after the best one
    assert saved.index(("best.ckpt", 20)) + 1 == saved.index(("last.ckpt", 20))


def test_without_validation_the_last_checkpoint_is_written(task: Any) -> None:
    saved = Recorder(task, interval=None, max_steps=9).take_steps(Checkpoints(every=4), 9, {})
    assert saved == [("last.ckpt", 4), ("last.ckpt", 8), ("last.ckpt", 9)]


def test_nothing_is_written_while_a_parameter_is_not_finite(task: Any) -> None:
    task.model.head.bias.data[3] = float("inf")
    recorder = Recorder(task)
    with pytest.raises(NonFiniteError, match=r"parameter model\.head\.bias is not finite after step 4"):
        recorder.take_steps(Checkpoints(every=4), 8, {})
    assert recorder.saved == []


def test_a_nan_score_is_not_the_best(task: Any) -> None:
    task.mode = "min"
    saved = Recorder(task).take_steps(Checkpoints(every=1000), 30, {10: float("nan"), 20: 0.4, 30: 0.5})
    assert ("best.ckpt", 20) in saved
    assert ("best.ckpt", 30) not in saved


def test_best_score_and_random_state_are_restored(task: Any) -> None:
    task.mode = "min"
    recorder = Recorder(task)
    first = Checkpoints(every=1000)
    recorder.take_steps(first, 20, {10: 0.5, 20: 0.4})
    torch.rand(3), np.random.rand(3), random.random(), np.random.randn(), random.gauss(0, 1)
    saved = first.state_dict()
    torch.save(saved, buffer := Path("/dev/null"))
    assert buffer.exists()
    expected = (torch.rand(5), np.random.randn(5), random.gauss(0, 1), random.random())

    second = Checkpoints(every=1000)
    second.load_state_dict(saved)
    second.on_train_start(recorder, task)
    actual = (torch.rand(5), np.random.randn(5), random.gauss(0, 1), random.random())
    assert torch.equal(actual[0], expected[0])
    assert (actual[1] == expected[1]).all()
    assert actual[2:] == expected[2:]
    recorder.saved.clear()
    recorder.take_steps(second, 20, {20: 0.45})
    assert recorder.saved == []


def test_saved_state_loads_as_plain_data(tmp_path: Path) -> None:
    torch.save(Checkpoints().state_dict(), tmp_path / "state")
    torch.load(tmp_path / "state", weights_only=True)


@pytest.mark.parametrize("every", [0, -1, 2.0, "3", True])
@pytest.mark.parametrize("kind", [Checkpoints, FiniteGuard])
def test_intervals_are_positive_integers(kind: type, every: Any) -> None:
    with pytest.raises(OptionError, match=f"every={every}: must be an integer ≥ 1"):
        kind(every=every)
