"""A run whose figures are drawn."""

import pytest

from gyral.runs.directory import Run, load_run
from tests.helpers.running import SMALL_RECALL, train


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of a second."""
    return load_run(train(tmp_path_factory.mktemp("runs") / "run", *SMALL_RECALL, "model=lstm"))
