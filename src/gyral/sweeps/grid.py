"""Sweepers: the base class, and Grid, which runs every combination of values. Imports no torch."""

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from gyral.core.errors import JobError, OptionError, SweepError
from gyral.sweeps.launchers.base import FinishedJob, SweepLauncher

log = logging.getLogger(__name__)


class BaseSweeper(Sweeper):
    """Base class of all sweepers.

    Args:
        params: axes by key, in Hydra's grammar. Axes on the command line replace them.
    """

    hydra_context: HydraContext
    config: DictConfig
    launcher: SweepLauncher

    def __init__(self, params: dict[str, Any] | None = None) -> None:
        self.params = params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        launcher = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)
        if not isinstance(launcher, SweepLauncher):
            raise OptionError("hydra/launcher", type(launcher).__name__, "must be one of the choices of launcher")
        self.launcher = launcher
        self.directory = Path(str(config.hydra.sweep.dir))

    def overrides(self, arguments: list[str]) -> dict[str, Override]:
        """Return the overrides of all jobs by key; the command line replaces `params`."""
        words = [f"{key}={value}" for key, value in self.params.items()] + arguments
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        return {override.get_key_element(): override for override in parser.parse_overrides(words)}

    def run_jobs(
        self, jobs: Iterable[tuple[int, Sequence[str]]], total: int, raises: bool = True
    ) -> Iterator[FinishedJob]:
        """Run jobs; report and yield the outcome of each, and finally list the failures.

        Raises:
            SweepError: some jobs failed, and `raises` is True.
        """
        failures: list[BaseException] = []
        for count, finished in enumerate(self.launcher.run(jobs), 1):
            if finished.error:
                failures.append(finished.error)
            if self.launcher.in_other_processes:
                outcome = "FAILED" if finished.error else "was DONE" if finished.was_done else "DONE"
                value = (
                    f": {finished.job.config.task.monitor} {finished.value:.6g}" if finished.value is not None else ""
                )
                log.info("%d of %d %s %s%s", count, total, outcome, finished.job.name, value)
            yield finished
        for failure in failures:
            if not isinstance(failure, JobError):  # HYDRA_FULL_ERROR=1 asks for the traceback
                raise failure
        if failures:
            print("\nFailed:", *failures, sep="\n  ", file=sys.stderr)
        if failures and raises:
            failed = "1 job" if len(failures) == 1 else f"{len(failures)} jobs"
            raise SweepError(f"{failed} of {total} failed, see above; the same command retries all that are not DONE")


class Grid(BaseSweeper):
    """Runs every combination of the axes' values."""

    def sweep(self, arguments: list[str]) -> None:
        axes = [
            [f"{key}={value}" for value in values_of(override)] for key, override in self.overrides(arguments).items()
        ]
        jobs = list(product(*axes))
        validated: set[str] = set()
        for job in jobs:  # an unknown choice or key is reported before the first job starts
            if not validated.issuperset(job):
                validated.update(job)
                self.validate_batch_is_legal([job])
        self.directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, self.directory / "multirun.yaml")
        log.info("%d jobs in %s", len(jobs), self.directory)
        for _ in self.run_jobs(enumerate(jobs), len(jobs)):
            pass


def values_of(override: Override) -> list[str]:
    """Return the values of an axis, each as it is written on the command line.

    Raises:
        OptionError: the axis is an interval, which has no finite list of values.
    """
    if not override.is_sweep_override():
        return [override.get_value_element_as_str()]
    if not override.is_discrete_sweep():
        key, _, value = str(override.input_line).partition("=")
        raise OptionError(key, value, "must be a list of values; sweep=tune searches intervals")
    return list(override.sweep_string_iterator())
