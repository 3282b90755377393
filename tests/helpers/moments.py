"""Copies of a run that are made while it trains. A copy made at some moment is what a kill at that moment leaves."""

import functools
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.helpers import killing
from tests.helpers.running import Outcome, invoke

Moment = tuple[str, int]  # a point of `killing.arm` and the optimizer steps taken then


def train_and_copy(directory: Path, moments: Iterable[Moment], *arguments: str) -> Outcome:
    """Run `gyral train` into a directory, and at each moment copy that to `copy_at`."""
    with pytest.MonkeyPatch.context() as context:
        for moment in moments:
            leave = functools.partial(copy_once, directory, copy_at(directory, *moment))
            killing.arm(*moment, act=leave, patch=context.setattr)
        outcome = invoke(*arguments, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return outcome


def copy_at(directory: Path, point: str, step: int) -> Path:
    """Return the place of the copy of a run at a moment, beside the run."""
    return directory.with_name(f"{point} {step}")


def copy_once(directory: Path, target: Path) -> None:
    """Copy a directory, unless the copy exists."""
    if not target.exists():
        shutil.copytree(directory, target)
