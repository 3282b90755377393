"""What several suites of faults use."""

from pathlib import Path

import pytest

from tests.faults.databases import SEARCH
from tests.helpers.running import invoke


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a search of two trials."""
    directory = tmp_path_factory.mktemp("searched")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        outcome = invoke(*SEARCH, "hydra.sweeper.n_trials=2")  # here: the forks find what it has imported and composed
    assert outcome.status == 0, outcome.err
    return directory
