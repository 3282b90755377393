"""Longer sweeps: a job continues the finished run of the same job with fewer steps. Imports no torch."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from gyral.core.errors import UserError
from gyral.core.files import copy_folder, remove
from gyral.core.ranks import launched
from gyral.runs.directory import (
    BUDGET,
    CONFIG,
    DONE,
    FAILED,
    LAST_CHECKPOINT,
    LOCK,
    LOG,
    WANDB,
    Run,
    check_links,
    read_saved_run,
)
from gyral.runs.opening import as_saved, difference_of, lengthened, other_commit
from gyral.runs.provenance import DIFF, OVERRIDES, PROVENANCE, commits_of
from gyral.runs.summary import relative_path

log = logging.getLogger(__name__)

# What belongs to the shorter run alone.
OWN = (CONFIG, OVERRIDES, PROVENANCE, DIFF, DONE, FAILED, LOG, LOCK, WANDB, "figures", "*.tmp")
DIGEST = 13  # characters at the end of a long name of a directory, see `gyral.config.resolvers.directory_name`


@contextmanager
def continued(run: Run) -> Iterator[Run]:
    """Yield a run that starts from the finished run of the same job of a sweep with fewer steps, if there is one.

    The shorter run stays as it is: its checkpoints and logs are copied. If the body fails before the configuration of
    the run is written, the copies are removed.

    Args:
        run: the run of a job of a sweep; any but a new one that sets `BUDGET` is yielded as it is.
    """
    hydra = HydraConfig.get()
    sets_budget = any(override.startswith(f"{BUDGET}=") for override in hydra.overrides.task)
    is_alone = launched() is None  # else all processes would have to find it
    found = find_shorter(run) if run.is_new and sets_budget and is_alone else None
    if found is None:
        yield run
        return
    shorter, longer = found
    kept = {path.name for path in run.directory.iterdir()}
    place = f"{relative_path(shorter.directory)}{other_commit(shorter.directory)}"
    log.info("Continuing the run of %s steps in %s", shorter.config.trainer.max_steps, place)
    copy_folder(shorter.directory, run.directory, without=OWN)
    try:
        yield longer
    finally:
        if not (run.directory / CONFIG).is_file():
            for path in [path for path in run.directory.iterdir() if path.name not in kept]:
                remove(path)


def find_shorter(run: Run) -> tuple[Run, Run] | None:
    """Return the longest finished run beside a new run that differs in fewer steps alone, and the run continuing it.

    A run whose schedule ends with it, or that early stopping has ended, cannot be continued.
    """
    steps = run.config.trainer.max_steps
    found: dict[int, tuple[Run, Run]] = {}
    for directory in _candidates(run.directory):
        try:
            check_links(directory, "hydra.sweep.dir")
            shorter = read_saved_run(directory)
            config = as_saved(shorter, run.config)
            is_shorter = lengthened(shorter, steps) is not shorter
            shorter.check_data()
            commits = tuple(commits_of(directory))
        except UserError:  # it cannot be continued
            continue
        if is_shorter and difference_of(shorter, config, **{BUDGET: steps}) is None:
            longer = replace(run, config=config, checkpoint=run.directory / LAST_CHECKPOINT, commits=commits)
            found[shorter.config.trainer.max_steps] = shorter, longer
    return found[max(found)] if found else None


def _candidates(directory: Path) -> list[Path]:
    """Return the directories of finished jobs whose names differ from that of a job after the key of the budget."""
    start = directory.name.partition(f"{BUDGET}=")[0]
    if start == directory.name:  # a long name shows its first half only
        start = start[:-DIGEST]
    beside = (path for path in directory.parent.iterdir() if path.name.startswith(start.rstrip(",")))
    return [path for path in beside if path != directory and (path / DONE).is_file() and (path / CONFIG).is_file()]
