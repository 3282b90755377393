"""Data of logical inference for the suites of all tasks: see tests/helpers/slices.py."""

from typing import Any

from gyral.applications.logic.task import LogicalInferenceTask

SHORT = {"task.generated": "true"}  # overrides for the commands of the documentation
NO_EFFECT = ("generated", "path", "data_dir")  # options of files, which do not change generated pairs


def effects(task: Any) -> list[Any] | None:
    """Return further values that an option may change, besides the data and the sizes of the model."""
    return [task.model.readout.dropout.p] if isinstance(task, LogicalInferenceTask) else None
