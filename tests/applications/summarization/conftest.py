"""A run on articles that the tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gyral.applications.summarization.task import SummaryTask
from gyral.runs.directory import load_run
from gyral.training import build
from tests.applications.summarization.small import SUMMARIES
from tests.helpers.moments import train_and_copy


@pytest.fixture(scope="session")
def summary_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run on the articles of pairs.jsonl; beside it is what a kill after step 8 leaves."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    outcome = train_and_copy(directory, [("before_step", 8)], *SUMMARIES, "callbacks=norms")
    assert "ROUGE-1" in outcome.out
    return directory


@pytest.fixture(scope="session")
def loaded(summary_run: Path) -> SummaryTask:
    """The trained task of the run."""
    return build.load_trained(load_run(summary_run), "best")[0]


@pytest.fixture
def trained(loaded: SummaryTask) -> Iterator[SummaryTask]:
    """The trained task of the run, whose search a test may change."""
    decoding = loaded.decoding
    yield loaded
    loaded.decoding = decoding
