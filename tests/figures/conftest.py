"""Runs that the tests of figures share."""

from pathlib import Path

import pytest

from gyral.runs.directory import Run, load_run
from tests.helpers.running import SMALL_RECALL, train

# zoneout reveals it if recording draws random numbers, or leaves the model in another mode
RUM = (*SMALL_RECALL, "model=rum", "model.cell.lambd=1", "model.cell.zoneout=0.2", "optimizer.lr=0.02")


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose cosines were recorded, after steps 8, 16 and 24; its best checkpoint is not its last."""
    with_cosines = (*RUM, "callbacks=cosines", "task.monitor=val/loss", "task.mode=max")
    return train(tmp_path_factory.mktemp("runs") / "run", *with_cosines)


@pytest.fixture(scope="session")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "lstm", *SMALL_RECALL, "model=lstm", "trainer.max_steps=3")


@pytest.fixture(scope="session")
def goru(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "goru", *SMALL_RECALL, "model=goru", "trainer.max_steps=3")


@pytest.fixture
def run(directory: Path) -> Run:
    return load_run(directory)
