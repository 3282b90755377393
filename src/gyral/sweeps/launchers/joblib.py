"""launcher=joblib and default: the jobs of a sweep in parallel on this machine."""

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn

from gyral.core.pace import Pace
from gyral.core.parallel import available_cores
from gyral.sweeps.launchers.base import (
    POLL,
    ParallelLauncher,
    SweepJob,
    SweepLauncher,
    check_n_jobs,
    execute_in_worker,
    measure_in_worker,
)
from gyral.sweeps.launchers.gpus import (
    check_gpus_per_job,
    describe_sharing,
    gpus_of_worker,
    simultaneous_jobs,
    visible_gpus,
)
from gyral.sweeps.launchers.local import Local

PR_SET_PDEATHSIG = 1  # of prctl.h
MODULES = ("gyral.training.build", "gyral.training.loggers", "gyral.training.loop", "gyral.figures.loss_curve")


class Worker:
    """A process that runs one job after another and keeps its imported modules.

    Each worker is an executor of joblib's loky with one process, so that a process that dies ends no other. A process
    that has died is replaced when the worker is given its next job.
    """

    def __init__(self, number: int, environment: dict[str, str], output: Path) -> None:
        self.number, self.environment, self.output = number, environment, output
        self.pool: Any = None  # the process starts with the first job that is not DONE

    def start(self) -> None:
        from joblib.externals.loky import ProcessPoolExecutor

        self.pool = ProcessPoolExecutor(
            1, initializer=_initialize_worker, initargs=(os.getpid(), self.output), env=self.environment
        )
        self.pid = self.pool.submit(_prepare_worker)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            if self.pool is None:
                self.start()
            elif self.pid.done():  # it has run a job, and could have died since
                self.pool.submit(os.getpid).result()
            return self.pool.submit(function, *arguments)
        except futures.BrokenExecutor:
            self.end(kill=True)
            self.start()
            return self.pool.submit(function, *arguments)

    def signal(self, number: int) -> None:
        if self.pid.done() and self.pid.exception() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid.result(), number)
        else:
            self.end(kill=True)

    def end(self, kill: bool = False) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True, kill_workers=kill)
            self.pool = None  # a sweep that chooses options runs further jobs afterwards


def _prepare_worker() -> int:
    """Import the modules that jobs need, and return the id of this process."""
    for module in MODULES:
        with contextlib.suppress(ModuleNotFoundError):  # of an extra: a job that needs it says so
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # later collections leave out what has been imported, which would take them 0.3 s
    return os.getpid()


def _initialize_worker(sweep_pid: int, output: Path) -> None:
    """Initialize a worker: its own session, which Ctrl-C does not reach, and its output redirected to a file.

    The worker ends with the sweep. Otherwise its job would continue to write to a run directory that the next start of
    the sweep resumes.
    """
    from joblib.externals.loky import process_executor

    # With psutil installed, loky ends a process whose memory has grown by 300 MB, and starts another. A job that is
    # submitted at that moment never runs, and a signal to stop would go to the process that has ended.
    vars(process_executor)["_USE_PSUTIL"] = False
    os.setsid()
    with output.open("a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)

    def watch() -> None:
        while os.getppid() == sweep_pid:
            time.sleep(POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if sys.platform == "linux":  # ends the worker immediately, even in the middle of a long operation
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Joblib(ParallelLauncher):
    """Runs jobs in parallel on this machine, in persistent processes that divide cores and GPUs among themselves.

    Args:
        n_jobs: maximum number of simultaneous jobs. None: as many as the GPUs allow; without GPUs, one per core.
        gpus: GPUs per job, if the machine has any: an integer, a fraction if several jobs share one, or 0 for none.
    """

    def __init__(self, n_jobs: int | None = None, gpus: float = 1) -> None:
        self.n_jobs, self.gpus = check_n_jobs(n_jobs), check_gpus_per_job(gpus)
        self.idle: list[Worker] = []
        self.workers: dict[Any, Worker] = {}

    @cached_property
    def at_once(self) -> int:
        gpus = visible_gpus() if self.gpus else []
        return self.n_jobs or (simultaneous_jobs(gpus, self.gpus) if gpus else available_cores())

    def measure(self, job: SweepJob, seconds: float) -> Pace | None:
        """Return the pace of a job, measured in the first worker, which has imported PyTorch when the sweep starts."""
        try:
            self.begin()
            pace: Pace | None = self.idle[-1].submit(measure_in_worker, job, seconds).result()
        except futures.BrokenExecutor:  # the job itself will report why
            return None
        except BaseException:  # an interrupt, too: the sweep does not start, and no worker may stay behind
            for worker in self.idle:
                worker.end(kill=True)
            raise
        return pace

    def begin(self) -> int:
        n_jobs = self.at_once
        if self.idle:  # `measure` has made them
            return n_jobs
        gpus, cores = visible_gpus(), available_cores()
        if len(gpus) > 1 and self.gpus:
            print(describe_sharing(gpus, self.gpus, n_jobs), flush=True)
        logs = Path(str(self.config.hydra.sweep.dir), ".workers").resolve()
        logs.mkdir(parents=True, exist_ok=True)
        for number in range(n_jobs):
            environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores // n_jobs)))}
            if gpus:
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus_of_worker(gpus, self.gpus, number))
            self.idle.append(Worker(number, environment, logs / f"{number}.log"))
        self.idle.reverse()
        return n_jobs

    def submit(self, jobs: list[SweepJob]) -> list[Any]:
        handles = []
        for job in jobs:
            worker = self.idle.pop()
            handles.append(worker.submit(execute_in_worker, job))
            self.workers[handles[-1]] = worker
        return handles

    def wait(self, handles: list[Any]) -> list[Any]:
        return list(futures.wait(handles, return_when=futures.FIRST_COMPLETED).done)

    def result(self, handle: Any, job: SweepJob) -> JobReturn:
        worker = self.workers.pop(handle)
        self.idle.append(worker)
        return handle.result()

    def stop(self, at_once: bool) -> None:
        for worker in self.workers.values():
            worker.signal(signal.SIGINT if at_once else signal.SIGTERM)

    def end(self) -> None:
        for worker in self.workers.values():  # busy only if this process fails
            worker.end(kill=True)
        for worker in self.idle:
            worker.end()


def on_this_machine(n_jobs: int | None = None, gpus: float = 1) -> SweepLauncher:
    """Return launcher=default: jobs in parallel if there are GPUs for several, or `n_jobs` says so, else one by one."""
    launcher = Joblib(n_jobs, gpus)
    is_parallel = launcher.at_once > 1 and (n_jobs is not None or (gpus > 0 and len(visible_gpus()) > 1))
    return launcher if is_parallel else Local()
