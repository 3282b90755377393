"""launcher=local: the jobs of a sweep one after another, in this process."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hydra.core.utils import configure_log, setup_globals

from gyral.core.pace import Pace
from gyral.core.signals import Interrupted, stop
from gyral.runs.directory import DONE
from gyral.sweeps.launchers.base import FinishedJob, SweepJob, SweepLauncher, execute, measure


class Local(SweepLauncher):
    """Runs jobs one after another, in this process."""

    in_other_processes = False
    at_once = 1

    def measure(self, job: SweepJob, seconds: float) -> Pace | None:
        return measure(job, seconds)

    def run(self, numbered: Iterable[tuple[int, Sequence[str]]]) -> Iterator[FinishedJob]:
        setup_globals()
        stop.received.clear()
        for number, overrides in numbered:
            configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
            job = self.compose(number, overrides)
            was_done = (job.directory / DONE).is_file()
            yield replace(FinishedJob.of(job, execute(job, quiet=was_done)), was_done=was_done)
            if stop.asked:  # the job failed before it could stop, or ended
                raise Interrupted
