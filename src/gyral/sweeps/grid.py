"""What the jobs of a sweep are: every combination of the values given. Imports no torch."""

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

from gyral.core.errors import OptionError
from gyral.sweeps.launchers import Finished, JobError, Jobs

log = logging.getLogger(__name__)


class SweepError(Exception):
    """Some jobs of a sweep failed."""


class Search(Sweeper):
    """What sweepers share.

    Args:
        params: axes by key, in Hydra's grammar; the command line's go before.
    """

    hydra_context: HydraContext
    config: DictConfig
    launcher: Jobs

    def __init__(self, params: dict[str, Any] | None = None) -> None:
        self.params = params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        launcher = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)
        if not isinstance(launcher, Jobs):
            raise OptionError(f"hydra/launcher={type(launcher).__name__}: must be one of launcher's choices")
        self.launcher = launcher
        self.directory = Path(str(config.hydra.sweep.dir))

    def overrides(self, arguments: list[str]) -> dict[str, Override]:
        """Return the overrides of all jobs by key, the file's and the command line's, which replace them."""
        words = [f"{key}={value}" for key, value in self.params.items()] + arguments
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        return {override.get_key_element(): override for override in parser.parse_overrides(words)}

    def conduct(self, jobs: Iterable[tuple[int, Sequence[str]]], total: int, raises: bool = True) -> Iterator[Finished]:
        """Run jobs; say and yield how each ended, and at last which failed.

        Raises:
            SweepError: some did, where `raises`.
        """
        failures: list[BaseException] = []
        for count, finished in enumerate(self.launcher.run(jobs), 1):
            if finished.error:
                failures.append(finished.error)
            if self.launcher.elsewhere:
                how = "FAILED" if finished.error else "was DONE" if finished.before else "DONE"
                value = (
                    f": {finished.job.config.task.monitor} {finished.value:.6g}" if finished.value is not None else ""
                )
                log.info("%d of %d %s %s%s", count, total, how, finished.job.name, value)
            yield finished
        for failure in failures:
            if not isinstance(failure, JobError):  # a traceback is wanted
                raise failure
        if failures:
            print("\nFailed:", *failures, sep="\n  ", file=sys.stderr)
        if failures and raises:
            one = "1 job" if len(failures) == 1 else f"{len(failures)} jobs"
            raise SweepError(f"{one} of {total} failed, see above; the same command tries again what is not DONE")


class Grid(Search):
    """Every combination."""

    def sweep(self, arguments: list[str]) -> None:
        axes = [
            [f"{key}={value}" for value in values_of(override)] for key, override in self.overrides(arguments).items()
        ]
        jobs = list(product(*axes))
        shown: set[str] = set()
        for job in jobs:  # an unknown choice or key is told before the first job
            if not shown.issuperset(job):
                shown.update(job)
                self.validate_batch_is_legal([job])
        self.directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, self.directory / "multirun.yaml")
        log.info("%d jobs in %s", len(jobs), self.directory)
        for _ in self.conduct(enumerate(jobs), len(jobs)):
            pass


def values_of(override: Override) -> list[str]:
    """Return the values that a sweep goes through, each as it stands on the command line.

    Raises:
        OptionError: an interval, which has no end of them.
    """
    if not override.is_sweep_override():
        return [override.get_value_element_as_str()]
    if not override.is_discrete_sweep():
        raise OptionError(f"{override.input_line}: must be a list of values; sweep=tune searches intervals")
    return list(override.sweep_string_iterator())
