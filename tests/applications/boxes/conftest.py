"""A run on boxes in the plane that the tests share."""

import shutil

import pytest

from gyral.runs.directory import Run, load_run
from tests.applications.boxes.small import FELINES
from tests.helpers import killing
from tests.helpers.running import invoke


@pytest.fixture(scope="session")
def felines(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on the hypernyms of felines; `killed` beside it is what a kill after step 11 leaves."""
    directory = tmp_path_factory.mktemp("runs") / "felines"
    with pytest.MonkeyPatch.context() as patch:
        copy = lambda: shutil.copytree(directory, directory.with_name("killed"))  # noqa: E731
        killing.arm("before_step", 11, act=copy, patch=patch.setattr)
        outcome = invoke(*FELINES, "model.dimension=2", "callbacks=boxes", f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    assert "test F1" in outcome.out
    return load_run(directory)
