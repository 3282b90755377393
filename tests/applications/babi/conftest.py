"""Runs on generated stories that the tests share."""

from pathlib import Path

import pytest

from gyral.runs.directory import Run, load_run
from tests.applications.babi.small import SMALL_BABI
from tests.helpers.running import SMALL_RECALL, train


@pytest.fixture(scope="session")
def babi_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run on generated stories."""
    return train(tmp_path_factory.mktemp("runs") / "run", *SMALL_BABI, "model=gru")


@pytest.fixture(scope="session", params=["sentence", "word"])
def answering(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on generated stories of task 2, with attention."""
    arguments = ("model=gru", "task.qa=2", "task.attention=true", f"task.level={request.param}", "optimizer.lr=0.05")
    return load_run(train(tmp_path_factory.mktemp("runs") / "run", *SMALL_BABI, *arguments))


@pytest.fixture(scope="session")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run on another task."""
    return train(tmp_path_factory.mktemp("runs") / "lstm", *SMALL_RECALL, "model=lstm", "trainer.max_steps=3")
