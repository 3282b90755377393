"""A small task for the tests of callbacks."""

from typing import Any

import pytest

from gyral.data.batching import Batch
from tests.helpers.running import SMALL, build_task

TINY = {"batch_size": 4, "train_size": 8, "val_size": 4, "test_size": 4, "length": 4}
TEXT = (
    *(item for item in SMALL if not item.startswith(("task.", "model.cell"))),
    "task=text_file",
    "task.batch_size=4",
    "task.window=12",
    "task.warm_up=5",
    "task.corpus.val_fraction=0.004",
    "task.corpus.test_fraction=0.004",
    "model=gru",
    "model.cell.hidden_size=6",
)


@pytest.fixture
def task() -> Any:
    return build_task("model=gru", "task=recall", "model.cell.hidden_size=4", "model.backend=reference", **TINY)


@pytest.fixture
def batch(task: Any) -> Batch:
    return next(iter(task.data.loader("train")))
