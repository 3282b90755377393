"""launcher=slurm: the jobs of a sweep on a SLURM cluster, through submitit."""

import contextlib
import logging
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus

from gyral.core.checks import check_choice, check_integer
from gyral.core.commands import typed
from gyral.core.errors import JobError, UserError, printable
from gyral.core.extras import import_extra
from gyral.core.files import to_json, write_atomically
from gyral.core.parallel import available_cores
from gyral.core.signals import Interrupted, stop
from gyral.runs.directory import DONE
from gyral.runs.saved_files import read_json
from gyral.sweeps.launchers import slurm_queue
from gyral.sweeps.launchers.base import (
    POLL,
    ParallelLauncher,
    SweepJob,
    add_to_python_path,
    check_n_jobs,
    execute,
    execute_in_worker,
)
from gyral.sweeps.launchers.gpus import visible_gpus

log = logging.getLogger(__name__)

POLL_SLURM = 5.0  # seconds between two looks at the queue
FOLDER, IDS = ".submitit", "ids.json"  # in the directory of a sweep: submitit's files, and the ids of its jobs
ERROR = "error: "  # begins the line with the reason of a failure
PREEMPTION = 5  # seconds within which the controller tells of a preemption, after it has sent the signal
STOPPED = 130  # exit status of a job that was asked to stop, as of `gyral train`
MEMORY = {"slurm_mem", "slurm_mem_per_cpu", "slurm_mem_per_gpu"}  # other ways to request memory than mem_gb
SIGNALLED = 128  # added to a signal, is the exit status of a process that it has ended
STATES = {
    "CANCELLED": "was cancelled",
    "NODE_FAIL": "was lost with its node",
    "OUT_OF_MEMORY": "ran out of memory",
    "PREEMPTED": "was preempted and not requeued",
    "TIMEOUT": "reached its time limit and was not requeued",
}


class RequeueableJob:
    """A function that submitit submits again, unchanged, if the job is preempted or times out; the job then resumes."""

    def __call__(self, job: SweepJob) -> JobReturn | None:
        submitit_handler = signal.getsignal(signal.SIGUSR2)  # dumps this call for the next start, and requeues the job
        with stop.on_signals():
            try:
                return execute_in_worker(job)
            except Interrupted:
                submitit = import_extra("submitit", "launcher=slurm", "slurm")
                if submitit.JobEnvironment().global_rank > 0:  # the first task speaks for all
                    return None
                timed_out = must_requeue(submitit.JobEnvironment(), stop.received)
                reason = "Stopped; the same command resumes the job."
                if timed_out is not None:
                    handler: Any = submitit_handler.__self__  # type: ignore[union-attr]
                    handler.has_timed_out = lambda: timed_out  # submitit would guess it from the time that has passed
                    try:
                        handler.checkpoint_and_try_requeue(signal.SIGUSR2)  # ends the process
                    except submitit.core.utils.UncompletedJobError as error:
                        reason = f"{ERROR}{error}"  # it has timed out too often
                print(reason, file=sys.stderr, flush=True)
                sys.exit(STOPPED)

    def checkpoint(self, job: SweepJob) -> Any:
        return import_extra("submitit", "launcher=slurm", "slurm").helpers.DelayedSubmission(self, job)


def must_requeue(environment: Any, received: Sequence[int]) -> bool | None:
    """Return None if a job that signals have stopped must not be requeued, else whether it has reached its time limit.

    SLURM requeues a job that is preempted without a grace time. It leaves one with a grace time to itself, and ends one
    at its time limit. A job that somebody has cancelled stays so.

    Args:
        environment: submitit's description of the job.
        received: the signals.
    """
    was_warned = signal.SIGUSR2 in received or signal.SIGUSR1 in received  # as `sbatch --signal` asks for
    if environment.cluster == "local":
        return True if was_warned else None
    for _ in range(PREEMPTION):
        facts = slurm_queue.show(environment.job_id)
        state = facts.get("JobState", "RUNNING")  # the controller may not answer at once
        if facts.get("Reason") == "TimeLimit":
            return True
        if state != "RUNNING":  # it is cancelled, or SLURM requeues it
            break
        if facts.get("PreemptTime", "None") != "None":
            return False
        if was_warned:
            return True
        time.sleep(1)
    log.warning("SLURM says of this job: %s", facts or "nothing")
    return None  # else the signal was not SLURM's


class Slurm(ParallelLauncher):
    """Runs jobs on a SLURM cluster, which submitit submits as an array.

    A job that is preempted or times out is requeued and resumes from its last checkpoint. This process waits for all
    jobs. If it ends, the jobs continue, and the same command waits for them and collects their results. Results are
    read from the run directories, not from submitit's pickles, which somebody else may have written.

    Args:
        cluster: slurm, or local, which runs the same jobs on this machine as a trial.
        n_jobs: maximum number of submitted jobs. None: no limit; on this machine, one per core, or one that uses GPUs.
        requeues: maximum number of times that a job that times out is submitted again.
        python: command that starts Python in a job, as in a container. None: the Python of this process.
        **parameters: parameters of submitit's executor: timeout_min, cpus_per_task, gpus_per_node, slurm_partition, …
    """

    def __init__(
        self,
        cluster: str = "slurm",
        n_jobs: int | None = None,
        requeues: int = 10,
        python: str | None = None,
        **parameters: Any,
    ) -> None:
        self.cluster = check_choice("hydra.launcher.cluster", cluster, ("slurm", "local"))
        self.n_jobs = check_n_jobs(n_jobs)
        self.requeues = check_integer("hydra.launcher.requeues", requeues, minimum=0)
        self.python = python
        self.parameters = {name: value for name, value in parameters.items() if value is not None}
        if not MEMORY.isdisjoint(self.parameters):
            self.parameters.pop("mem_gb", None)  # the default; sbatch refuses two of them

    def begin(self) -> int | None:
        self.submitit = import_extra("submitit", "launcher=slurm", "slurm")
        add_to_python_path()
        self.folder = Path(str(self.config.hydra.sweep.dir), FOLDER).resolve()
        own = {n: value for n, value in self.parameters.items() if self.cluster == "slurm" or "slurm_" not in n}
        try:
            options: dict[str, Any] = {f"{self.cluster}_max_num_timeout": self.requeues}
            if self.cluster == "slurm":  # -P: the current directory may be somebody else's
                options["slurm_python"] = f"{self.python or typed([sys.executable])} -P"
            self.executor = self.submitit.AutoExecutor(self.folder, cluster=self.cluster, **options)
            self.executor.update_parameters(**own)
        except (AssertionError, RuntimeError, NameError, TypeError, ValueError) as error:
            raise UserError(f"launcher=slurm: {' '.join(str(error).split())}") from None
        self.ids = read_ids(self.folder / IDS)
        self._absent: set[Any] = set()  # from the queue, when it was last looked at
        self._warnings: set[str] = set()
        return self._share_this_machine() if self.cluster == "local" else self.n_jobs

    def _share_this_machine(self) -> int:
        """Divide the cores among the jobs, as launcher=joblib does; return the maximum number of simultaneous jobs."""
        cores = available_cores()
        uses_gpus = bool(self.parameters.get("gpus_per_node") and visible_gpus())
        n_jobs = self.n_jobs or (1 if uses_gpus else cores)  # submitit gives all jobs the same GPUs
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // n_jobs)))
        return n_jobs

    def submit(self, jobs: list[SweepJob]) -> list[Any]:
        queued = self._still_queued()
        known = {name: self.submitit.SlurmJob(self.folder, queued[name]) for name in names_of(jobs) if name in queued}
        if known:
            log.info("Still running: %s", summary(known))
        new = [job for job in jobs if str(job.directory) not in known]
        if new:
            added = dict(zip(names_of(new), self._submit(new), strict=True))
            self.ids |= {name: process.job_id for name, process in added.items()}
            write_atomically(self.folder / IDS, to_json(self.ids, 2) + "\n")
            log.info("Submitted: %s", summary(added))
            known |= added
        return [known[name] for name in names_of(jobs)]

    def _submit(self, jobs: list[SweepJob]) -> list[Any]:
        errors = self.submitit.core.utils
        # Ctrl-C and a closed terminal also reach sbatch, which could end without the ids of the jobs it has submitted
        unanswered = (signal.SIGINT, signal.SIGHUP) if self.cluster == "slurm" else ()
        former = signal.pthread_sigmask(signal.SIG_BLOCK, unanswered)  # sbatch inherits it
        try:
            return list(self.executor.map_array(RequeueableJob(), jobs))
        except (errors.FailedJobError, errors.FailedSubmissionError) as error:
            reasons = re.findall(r"error: (?:Batch job submission failed: )?(.*)", str(error)) or str(error).split("\n")
            raise UserError(f"launcher=slurm: sbatch: {reasons[-1].strip()}: {self._requested()}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)

    def _requested(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.parameters.items() if name != "name")

    def _still_queued(self) -> dict[str, str]:
        """Return the ids of the jobs that an earlier start has submitted and that have not ended, by run directory."""
        if not self.ids or self.cluster == "local":
            return {}
        try:
            queue = slurm_queue.read_queue()
        except OSError as error:
            raise UserError(f"launcher=slurm: {error}") from None
        return {directory: number for directory, number in self.ids.items() if number in queue}

    def wait(self, handles: list[Any]) -> list[Any]:
        while not (ended := self._ended(handles)):
            time.sleep(POLL if self.cluster == "local" else POLL_SLURM)
        return ended

    def _ended(self, handles: list[Any]) -> list[Any]:
        if self.cluster == "local":
            return [handle for handle in handles if handle.done()]
        try:
            queue = slurm_queue.read_queue()
        except OSError as error:
            self._warn(f"SLURM does not answer ({error}); the jobs are looked for again")
            return []
        self._check_requests({handle.job_id: queue[handle.job_id] for handle in handles if handle.job_id in queue})
        # twice, because a file of another node may appear later than the job disappears
        absent = {handle for handle in handles if handle.job_id not in queue}
        is_done = {handle: (self.running[handle].directory / DONE).is_file() for handle in absent}
        ended = [handle for handle in absent if handle in self._absent or is_done[handle]]
        self._absent = absent
        return ended

    def _check_requests(self, queue: dict[str, slurm_queue.QueuedJob]) -> None:
        """Report why jobs wait, if that is unusual.

        Raises:
            UserError: SLURM will never start some of them, which are cancelled.
        """
        waiting = {number: job.reason for number, job in queue.items() if job.state == "PENDING"}
        never = {number: reason for number, reason in waiting.items() if reason in slurm_queue.NEVER}
        if never:
            with contextlib.suppress(OSError):
                slurm_queue.call("scancel", *never)
            reasons = ", ".join(sorted(set(never.values())))
            raise UserError(
                f"launcher=slurm: no node will run the jobs ({reasons}): {self._requested()}; they are cancelled"
            )
        for reason in sorted({*waiting.values()} - {*slurm_queue.USUAL}):
            self._warn(f"SLURM: jobs wait ({reason})")

    def _warn(self, message: str) -> None:
        """Log a warning once."""
        if message not in self._warnings:
            self._warnings.add(message)
            log.warning(message)

    def result(self, handle: Any, job: SweepJob) -> JobReturn:
        directory = job.directory
        if (directory / DONE).is_file():
            return execute(job, quiet=True)
        state, status = ("UNKNOWN", 0) if self.cluster == "local" else slurm_queue.ending(handle.job_id)
        line = last_line(self.submitit.core.utils.JobPaths(self.folder, handle.job_id, 0).stderr)
        if state not in STATES and line.startswith(ERROR):  # the job itself has failed
            error = JobError(f"{directory}: {line.removeprefix(ERROR)}")
            return JobReturn(job.overrides, status=JobStatus.FAILED, _return_value=error)
        ending = describe_ending(state, status)
        raise JobError(f"{directory}: the job {handle.job_id} {ending}" + (f": {line}" if line else ""))

    def stop(self, at_once: bool) -> None:
        if self.cluster == "local":
            for handle in self.running:
                handle.cancel(check=False)
            return
        ids = sorted({handle.job_id.partition("_")[0] for handle in self.running}, key=int)
        print("\nThe jobs continue. To collect their results, repeat the command.", file=sys.stderr)
        if ids:
            print(f"To cancel them: scancel {' '.join(ids)}", file=sys.stderr, flush=True)
        raise Interrupted

    def end(self) -> None:
        pass


def describe_ending(state: str, status: int) -> str:
    """Return how a job without results has ended, from its state in SLURM and its exit status."""
    if state in STATES:
        return STATES[state]
    if status == STOPPED:
        return "was stopped"
    number = status - SIGNALLED
    is_signal = number in [known.value for known in signal.Signals]
    return f"was ended by {signal.Signals(number).name}" if is_signal else "ended without a result"


def read_ids(path: Path) -> dict[str, str]:
    """Return the ids of the jobs of a sweep by their run directories, as an earlier start has written them."""
    try:
        ids = read_json(path, dict[str, str])
    except UserError:  # there is no such file, or it is damaged
        return {}
    return {directory: number for directory, number in ids.items() if re.fullmatch(r"\d+(_\d+)?", number)}


def last_line(path: Path) -> str:
    """Return the last line of what a job has printed to standard error, or the last one that begins with "error: "."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    errors = [line for line in lines if line.startswith(ERROR)]
    return printable((errors or [line for line in lines if line] or [""])[-1])


def names_of(jobs: list[SweepJob]) -> list[str]:
    """Return the run directories of jobs."""
    return [str(job.directory) for job in jobs]


def summary(handles: Mapping[str, Any]) -> str:
    """Return the ids of jobs as text, the jobs of an array as one: "3 jobs of 42, 45"."""
    arrays = Counter(handle.job_id.partition("_")[0] for handle in handles.values())
    return ", ".join(number if count == 1 else f"{count} jobs of {number}" for number, count in arrays.items())
