"""A run on boxes in the plane that the tests share."""

import pytest

from gyral.runs.directory import Run, load_run
from tests.applications.boxes.small import FELINES
from tests.helpers.moments import train_and_copy


@pytest.fixture(scope="session")
def felines(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on the hypernyms of felines; beside it is what a kill after step 11 leaves."""
    directory = tmp_path_factory.mktemp("runs") / "felines"
    outcome = train_and_copy(directory, [("before_step", 11)], *FELINES, "model.dimension=2", "callbacks=boxes")
    assert "test F1" in outcome.out
    return load_run(directory)
