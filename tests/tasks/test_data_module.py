"""Evaluation has its own batch size, which changes neither training nor metrics."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gyral.core.errors import OptionError
from gyral.tasks.adding import AddingData
from gyral.tasks.data_module import SMALLEST_EVALUATION
from gyral.tasks.recall import RecallData
from tests.helpers.running import build_task
from tests.tasks.test_contract import TASKS, option_names

ROWS: dict[str, Any] = {"length": 6, "train_size": 40, "val_size": 50, "test_size": 70}


def streamed(data: Any) -> list[torch.Tensor]:
    data.trainer = SimpleNamespace(max_steps=7, accumulate_grad_batches=1)
    return [batch.inputs for batch in data.train_dataloader()]


@pytest.mark.parametrize("kind", [RecallData, AddingData])
def test_small_training_batches_do_not_make_evaluation_slow(kind: type) -> None:
    given = kind(**ROWS, batch_size=4)
    sizes = [len(batch.inputs) for batch in given.loader("test")]
    assert sizes == [SMALLEST_EVALUATION, SMALLEST_EVALUATION, 70 - 2 * SMALLEST_EVALUATION]
    for size in (4, 7, 100):
        other = kind(**ROWS, batch_size=4, eval_batch_size=size)
        assert len(other.loader("val")) == -(-50 // size)
        for split in ("val", "test"):
            whole, parts = (torch.cat([batch.inputs for batch in data.loader(split)]) for data in (given, other))
            assert torch.equal(whole, parts)
        assert all(map(torch.equal, streamed(given), streamed(other)))
    assert len(next(iter(kind(**ROWS, batch_size=40).loader("val"))).inputs) == 40


def test_drawn_batches_have_the_size_of_their_split() -> None:
    options = ("task=induction", "model=gru", "task.batch_size=4", "task.val_batches=2")
    given, other = build_task(*options), build_task(*options, eval_batch_size=6)
    for split, size in (("train", 4), ("val", 6), ("test", 6)):
        assert {len(batch.inputs) for batch in given.data.loader(split)} == {4}
        assert {len(batch.inputs) for batch in other.data.loader(split)} == {size}
    assert all(map(torch.equal, streamed(given.data), streamed(other.data)))


def test_every_task_has_a_batch_size_of_evaluation() -> None:
    assert [task for task in TASKS if "eval_batch_size" not in option_names(task)] == []
    with pytest.raises(OptionError, match=r"^task\.eval_batch_size=0: must be null or an integer ≥ 1$"):
        build_task("task=copy", "model=gru", eval_batch_size=0)
