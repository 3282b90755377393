"""launcher=local: the jobs of a sweep one after another, in this process."""

import logging
from collections.abc import Iterable, Iterator, Sequence

from hydra.core.utils import configure_log, filter_overrides, setup_globals

from gyral.sweeps.launchers.base import FinishedJob, SweepLauncher, execute

log = logging.getLogger(__name__)


class Local(SweepLauncher):
    """Runs jobs one after another, in this process."""

    in_other_processes = False

    def run(self, numbered: Iterable[tuple[int, Sequence[str]]]) -> Iterator[FinishedJob]:
        setup_globals()
        for number, overrides in numbered:
            configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
            log.info("Job %d: %s", number + 1, " ".join(filter_overrides(overrides)))
            job = self.compose(number, overrides)
            yield FinishedJob.of(job, execute(job))
