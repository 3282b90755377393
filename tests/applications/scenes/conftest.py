"""A run on scenes that the tests share."""

from pathlib import Path

import pytest

from tests.helpers.moments import train_and_copy
from tests.helpers.running import SMALL

# A new lesson begins at each validation, and the baseline of REINFORCE is part of the checkpoint.
SCENES = (
    *(item for item in SMALL if not item.startswith(("model.", "task"))),
    *("trainer.max_steps=6", "trainer.val_check_interval=2", "callbacks.checkpoints.every=3"),
    *("task=scenes", "task.train_scenes=20", "task.val_scenes=10", "task.test_scenes=4", "task.questions=5"),
    *("task.batch_size=4", "task.batch_questions=3", "task.threshold=0.001", "task.lessons=[[6,4],[6,5],[6,6],[6,8]]"),
    *("model=concept_learner", "model.encoder.hidden_size=8", "model.decoder.hidden_size=8", "optimizer=adam"),
)


@pytest.fixture(scope="session")
def scenes_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run; beside it is what a kill after step 4 leaves."""
    directory = tmp_path_factory.mktemp("runs") / "scenes"
    train_and_copy(directory, [("before_step", 4)], *SCENES)
    return directory
