"""The state of a run before the validation with which it has ended, if that was between two others. Imports no torch.

A run validates at multiples of an interval, and at its end. A longer run would not have validated there, and a
validation changes more than it reports: the best checkpoint, schedules and curricula that follow the metric, the
patience of early stopping, the start of an average. Therefore a run that ends between two validations keeps its
checkpoints of before in the folder checkpoints/step_<steps>, from which it continues if it is made longer.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from gyral.core.files import link_or_copy, remove

CHECKPOINTS, PREFIX = "checkpoints", "step_"
LAST, BEST = "last.ckpt", "best.ckpt"


def folder_before_end(directory: Path, steps: int) -> Path:
    """Return the folder with the checkpoints of a run before the validation after its last step."""
    return directory / CHECKPOINTS / f"{PREFIX}{steps}"


def remove_other_ends(directory: Path, steps: int) -> None:
    """Remove the folders of other ends than that of the last checkpoint, such as one that was not reached."""
    for of, folder in _ends(directory):
        if of != steps:
            remove(folder)


def undo_end(directory: Path, steps: int) -> None:
    """Let a run with more steps than before continue from its state before its last validation.

    If the process is killed in between, the next start does the rest.

    Args:
        directory: the run directory.
        steps: the number of steps of the run.
    """
    for of, folder in _ends(directory):
        if of >= steps:
            continue
        last, best = (directory / CHECKPOINTS / name for name in (LAST, BEST))
        if (folder / LAST).is_file():
            if (folder / BEST).is_file():
                link_or_copy(folder / BEST, best)
            else:
                best.unlink(missing_ok=True)
            os.replace(folder / LAST, last)
        remove(folder)


def _ends(directory: Path) -> Iterator[tuple[int, Path]]:
    """Yield the number of steps and the folder of each end that the run has had."""
    for folder in sorted((directory / CHECKPOINTS).glob(f"{PREFIX}*")):
        steps = folder.name.removeprefix(PREFIX)
        if steps.isdecimal() and folder.is_dir():
            yield int(steps), folder
