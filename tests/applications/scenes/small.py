"""Data of scenes for the suites of all tasks: see tests/helpers/slices.py."""

from typing import Any

from gyral.applications.scenes.models.concept_learner import SceneModel
from gyral.applications.scenes.task import ScenesTask

QUICK_TO_BUILD: dict[str, Any] = {"train_scenes": 20, "val_scenes": 4, "test_scenes": 4}
SHORT = {"task.train_scenes": 16, "task.val_scenes": 8, "task.test_scenes": 4}  # overrides for the documentation
ALTERNATIVES: dict[str, list[Any]] = {
    "objects": [[2, 4]],
    "more_objects": [None, [8, 9]],
    "attributes": [["shape"], ["shape", "color"]],
    "lessons": [[], [[3, 3], [6, 12]]],
}
NO_EFFECT = ("clevr",)  # location of files
WITHOUT_PREDICTION = ("majority",)


def model_options(required: type, cell: str, size: int) -> tuple[str, ...] | None:
    """Return the options of a small concept learner with a cell."""
    if required is not SceneModel:
        return None
    sides = [(f"cell@model.{side}={cell}", f"model.{side}.hidden_size={size}") for side in ("encoder", "decoder")]
    return ("model=concept_learner", "model.features=8", f"model.embedding_size={size}", *sides[0], *sides[1])


def effects(task: Any) -> list[Any] | None:
    """Return further values that an option may change, besides the data and the sizes of the model."""
    return [vars(task.data.curriculum)] if isinstance(task, ScenesTask) else None


ABSENT = (r"CLEVR_v1\.0: is not a folder",)  # the error without the corpus
