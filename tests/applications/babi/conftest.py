"""Runs on generated stories that the tests share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gyral.runs.directory import Run, load_run
from gyral.training import build
from tests.applications.babi.small import SMALL_BABI, few_stories
from tests.helpers.running import SMALL_RECALL, compose_config, invoke


@pytest.fixture(autouse=True)
def small(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fewer generated stories, unless a network must learn from them."""
    if "slow" in request.keywords:
        yield
        return
    with few_stories():
        yield


def trained(directory: Path, *options: str, steps: int = 3, validations: int = 1) -> Run:
    length = (f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps // validations}")
    with few_stories():
        outcome = invoke(*SMALL_BABI, "model=gru", *length, *options, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    assert "GENERATED stories" in outcome.out
    return load_run(directory)


@pytest.fixture(scope="session")
def babi_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run on generated stories, without attention."""
    return trained(tmp_path_factory.mktemp("runs") / "run").directory


@pytest.fixture(scope="session")
def answering_by_sentence(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on generated stories of task 2, with attention to sentences."""
    options = ("task.qa=2", "task.attention=true", "optimizer.lr=0.05")
    return trained(tmp_path_factory.mktemp("runs") / "run", *options, steps=6, validations=3)


@pytest.fixture(scope="session")
def answering_by_word(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on generated stories of task 2, with attention to words."""
    options = ("task.qa=2", "task.attention=true", "task.level=word", "optimizer.lr=0.05")
    return trained(tmp_path_factory.mktemp("runs") / "run", *options)


@pytest.fixture(params=["sentence", "word"])
def answering(request: pytest.FixtureRequest) -> Run:
    """Each of the runs with attention."""
    run: Run = request.getfixturevalue(f"answering_by_{request.param}")
    return run


@pytest.fixture
def task(babi_run: Path) -> Any:
    """The trained task of the run without attention."""
    return build.load_trained(load_run(babi_run), "best")[0]


@pytest.fixture
def lstm(tmp_path: Path) -> Path:
    """Directory of a run on another task, which has no checkpoint."""
    OmegaConf.save(compose_config(*SMALL_RECALL, "model=lstm"), tmp_path / "config.yaml")
    return tmp_path
