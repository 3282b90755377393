"""launcher=local: the jobs of a sweep one after another, in this process."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hydra.core.utils import configure_log, setup_globals

from gyral.config.resolvers import gpus_per_job
from gyral.core.pace import Pace
from gyral.core.signals import Interrupted, stop
from gyral.runs.directory import DONE
from gyral.sweeps.launchers.base import FinishedJob, SweepJob, SweepLauncher, execute, measure
from gyral.sweeps.launchers.gpus import describe_sharing, simultaneous_jobs, visible_gpus


class Local(SweepLauncher):
    """Runs jobs one after another, in this process."""

    in_other_processes = False
    at_once = 1

    def measure(self, job: SweepJob, seconds: float) -> Pace | None:
        return measure(job, seconds)

    def run(self, numbered: Iterable[tuple[int, Sequence[str]]]) -> Iterator[FinishedJob]:
        setup_globals()
        stop.received.clear()
        gpus, each = visible_gpus(), gpus_per_job(self.config.trainer)
        if each and len(gpus) > each:
            advice = "; launcher=joblib uses all of them" if simultaneous_jobs(gpus, each) > 1 else ""
            print(describe_sharing(gpus, each, n_jobs=1), advice, sep="", flush=True)
        for number, overrides in numbered:
            configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
            job = self.compose(number, overrides)
            was_done = (job.directory / DONE).is_file()
            yield replace(FinishedJob.of(job, execute(job, quiet=was_done)), was_done=was_done)
            if stop.asked:  # the job failed before it could stop, or ended
                raise Interrupted
