"""launcher=slurm: the jobs of a sweep on a SLURM cluster, through submitit."""

import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import UserError
from gyral.core.extras import import_extra
from gyral.core.parallel import available_cores
from gyral.sweeps.launchers.base import (
    POLL,
    ParallelLauncher,
    SweepJob,
    add_to_python_path,
    check_n_jobs,
    execute_in_worker,
)
from gyral.sweeps.launchers.gpus import visible_gpus

log = logging.getLogger(__name__)

POLL_SLURM = 5.0  # seconds


class RequeueableJob:
    """A function that submitit submits again, unchanged, if the job is preempted or times out; the job then resumes."""

    def __call__(self, job: SweepJob) -> JobReturn:
        # SLURM sends SIGTERM before a preemption, and does not requeue a job that SIGTERM ended
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        return execute_in_worker(job)

    def checkpoint(self, job: SweepJob) -> Any:
        return import_extra("submitit", "launcher=slurm", "slurm").helpers.DelayedSubmission(self, job)


class Slurm(ParallelLauncher):
    """Runs jobs on a SLURM cluster, which submitit submits as an array.

    A job that is preempted or times out is requeued and resumes from its last checkpoint. This process waits for all
    jobs. If it ends, the jobs continue, and the same command collects their results.

    Args:
        cluster: slurm, or local, which runs the same jobs on this machine as a trial.
        n_jobs: maximum number of submitted jobs. None: no limit; on this machine, one per core, or one that uses GPUs.
        requeues: maximum number of times that a job that times out is submitted again.
        **parameters: parameters of submitit's executor: timeout_min, cpus_per_task, gpus_per_node, slurm_partition, …
    """

    def __init__(
        self, cluster: str = "slurm", n_jobs: int | None = None, requeues: int = 10, **parameters: Any
    ) -> None:
        self.cluster = check_choice("hydra.launcher.cluster", cluster, ("slurm", "local"))
        self.n_jobs = check_n_jobs(n_jobs)
        self.requeues = check_integer("hydra.launcher.requeues", requeues, minimum=0)
        self.parameters = {name: value for name, value in parameters.items() if value is not None}

    def begin(self) -> int | None:
        submitit = import_extra("submitit", "launcher=slurm", "slurm")
        add_to_python_path()
        folder = Path(str(self.config.hydra.sweep.dir), ".submitit").resolve()
        options = {f"{self.cluster}_max_num_timeout": self.requeues}
        try:
            self.executor = submitit.AutoExecutor(folder, cluster=self.cluster, **options)
            own = {
                name: value
                for name, value in self.parameters.items()
                if self.cluster == "slurm" or "slurm_" not in name
            }
            self.executor.update_parameters(**own)
        except (AssertionError, RuntimeError, NameError, TypeError, ValueError) as error:
            raise UserError(f"launcher=slurm: {' '.join(str(error).split())}") from None
        self.jobs: list[Any] = []
        return self._share_this_machine() if self.cluster == "local" else self.n_jobs

    def _share_this_machine(self) -> int:
        """Divide the cores among the jobs, as launcher=joblib does; return the maximum number of simultaneous jobs."""
        cores = available_cores()
        uses_gpus = bool(self.parameters.get("gpus_per_node") and visible_gpus())
        n_jobs = self.n_jobs or (1 if uses_gpus else cores)  # submitit gives all jobs the same GPUs
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // n_jobs)))
        return n_jobs

    def submit(self, jobs: list[SweepJob]) -> list[Any]:
        submitted = self.executor.map_array(RequeueableJob(), jobs)
        self.jobs += submitted
        log.info("Submitted: %s", ", ".join(job.job_id for job in submitted))
        return submitted

    def wait(self, handles: list[Any]) -> list[Any]:
        while not (ended := [handle for handle in handles if handle.done()]):
            time.sleep(POLL if self.cluster == "local" else POLL_SLURM)
        return ended

    def result(self, handle: Any) -> JobReturn:
        return handle.result()

    def stop(self) -> None:
        for job in self.jobs:
            job.cancel(check=False)

    def end(self) -> None:
        pass
