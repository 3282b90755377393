"""A run on articles that the tests share."""

from pathlib import Path

import pytest

from tests.applications.summarization.small import SUMMARIES
from tests.helpers.running import train


@pytest.fixture(scope="session")
def summary_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run on the articles of pairs.jsonl."""
    return train(tmp_path_factory.mktemp("runs") / "run", *SUMMARIES)
