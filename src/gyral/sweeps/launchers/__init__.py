"""How the jobs of a sweep are run: launcher=local, joblib, slurm, ray.

Hydra's own launcher plugins are not used. With joblib's, one worker that the system ends takes the whole sweep with it,
and when the sweep is ended its workers go on writing; submitit's tells the first failure alone; ray's cannot be
installed beside today's cloudpickle. Here joblib, submitit and Ray are called by their own interfaces, and all behave
alike: a job that fails, or whose process dies, is told with the reason, and the others go on. Imports no torch, and an
engine only where it is chosen.
"""

import contextlib
import ctypes
import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from gyral import runs
from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.core.signals import SIGNALS, Interrupted

log = logging.getLogger(__name__)

POLL = 0.2  # seconds
PR_SET_PDEATHSIG = 1  # of prctl.h


class JobError(Exception):
    """A job of a sweep failed; the others go on. The message is one line, the run directory and the reason."""


@dataclass(frozen=True)
class Job:
    """One job of a sweep, as it is sent to where it runs.

    Attributes:
        number: from 0.
        overrides: of this job.
        config: what they stand for, with Hydra's own section.
        directory: its run directory, absolute.
        context, function: what Hydra needs to run it.
        command, cwd: of the sweep.
    """

    number: int
    overrides: tuple[str, ...]
    config: DictConfig
    directory: Path
    context: HydraContext
    function: TaskFunction
    command: tuple[str, ...]
    cwd: str

    @property
    def name(self) -> str:
        """The run directory as a user would write it."""
        return str(self.directory.relative_to(self.cwd) if self.directory.is_relative_to(self.cwd) else self.directory)


@dataclass(frozen=True)
class Finished:
    """How a job ended: with a value that it returned, or with an error; `before`: in an earlier start of the sweep."""

    job: Job
    value: Any = None
    error: BaseException | None = None
    before: bool = False


def execute(job: Job, quiet: bool = False) -> JobReturn:
    """Run a job in this process, without a word where it is not to be heard."""
    with contextlib.ExitStack() as stack:
        if quiet:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.INFO)
        setup_globals()
        return run_job(
            hydra_context=job.context,
            task_function=job.function,
            config=job.config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            configure_logging=not quiet,
        )


def execute_elsewhere(job: Job) -> JobReturn:
    """Run a job in a process of an engine; what it returns can be sent back, whatever the job's error is."""
    os.chdir(job.cwd)
    sys.argv[:] = job.command
    importlib.import_module("gyral.config.command_line")  # the resolvers of the configuration
    ended = execute(job)
    ended.cfg = ended.hydra_cfg = None
    if ended.status == JobStatus.FAILED and not isinstance(ended._return_value, JobError):
        ended.return_value = JobError(f"{job.directory}: {type(ended._return_value).__name__}; see {runs.FAILED} there")
    return ended


class Jobs(Launcher):
    """What all launchers share: jobs are composed one by one as they are asked for, and told as they end.

    Attributes:
        elsewhere: whether jobs run in other processes, so that this one has to say how they ended.
    """

    elsewhere = True

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run a batch of jobs, as Hydra's own sweepers ask for them."""
        returned = {}
        for finished in self.run(enumerate(job_overrides, initial_job_idx)):
            status = JobStatus.FAILED if finished.error else JobStatus.COMPLETED
            value = finished.error or finished.value
            returned[finished.job.number] = JobReturn(finished.job.overrides, status=status, _return_value=value)
        return [returned[number] for number in sorted(returned)]

    @abstractmethod
    def run(self, numbered: Iterable[tuple[int, Sequence[str]]]) -> Iterator[Finished]:
        """Run jobs, given by number and overrides, as there is room for them; yield how each ended, when it has.

        Raises:
            Interrupted: by Ctrl-C or SIGTERM, once the jobs under way have stopped.
        """

    def compose(self, number: int, overrides: Sequence[str]) -> Job:
        """Return a job."""
        config = self.context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        former = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)  # where the interpolations of its directory look
        try:
            directory = Path(str(OmegaConf.select(config, "hydra.sweep.dir")), str(config.hydra.sweep.subdir)).resolve()
        finally:
            HydraConfig.instance().cfg = former
        command, cwd = tuple(sys.argv), str(Path.cwd())
        return Job(number, tuple(overrides), config, directory, self.context, self.function, command, cwd)


def finish(job: Job, ended: JobReturn) -> Finished:
    """Return how a job ended by what it returned."""
    value = ended._return_value  # the property would print, and raise
    return Finished(job, error=value) if ended.status == JobStatus.FAILED else Finished(job, value)


class Local(Jobs):
    """The jobs one after another, in this process."""

    elsewhere = False

    def run(self, numbered: Iterable[tuple[int, Sequence[str]]]) -> Iterator[Finished]:
        setup_globals()
        for number, overrides in numbered:
            configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
            log.info("Job %d: %s", number + 1, " ".join(filter_overrides(overrides)))
            job = self.compose(number, overrides)
            yield finish(job, execute(job))


class Engine(Jobs):
    """Jobs in other processes, of which an engine takes care."""

    def run(self, numbered: Iterable[tuple[int, Sequence[str]]]) -> Iterator[Finished]:
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        setup_globals()
        jobs = (self.compose(number, overrides) for number, overrides in numbered)
        busy: dict[Any, Job] = {}
        with contextlib.ExitStack() as stack:
            stack.callback(self.end)
            room = self.begin()
            asked = stack.enter_context(self._stopped_by_signals())
            while True:
                fresh: list[Job] = []
                while not asked and (room is None or len(busy) + len(fresh) < room) and (job := next(jobs, None)):
                    if (job.directory / runs.DONE).is_file():  # and not sent anywhere
                        yield replace(finish(job, execute(job, quiet=True)), before=True)
                    else:
                        fresh.append(job)
                if fresh:
                    busy.update(zip(self.submit(fresh), fresh, strict=True))
                if not busy:
                    break
                for handle in self.wait(list(busy)):
                    job = busy.pop(handle)
                    try:
                        finished = finish(job, self.result(handle))
                    except Interrupted:
                        asked.append(True)
                    except Exception as error:
                        if not asked:
                            yield Finished(job, error=_lost(job, error))
                    else:
                        yield finished
            if asked:
                raise Interrupted

    @contextlib.contextmanager
    def _stopped_by_signals(self) -> Iterator[list[bool]]:
        """Pass Ctrl-C and SIGTERM on to the jobs; provide a list that has something in it once there was one."""
        asked: list[bool] = []

        def handle(*_: Any) -> None:
            asked.append(True)
            print("\nStopping the jobs after their step; once more stops at once.", file=sys.stderr, flush=True)
            self.stop()

        former = {}
        if threading.current_thread() is threading.main_thread():
            former = {number: signal.signal(number, handle) for number in SIGNALS}
        try:
            yield asked
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    @abstractmethod
    def begin(self) -> int | None:
        """Start; return how many jobs may be under way at once, None for any number."""

    @abstractmethod
    def submit(self, jobs: list[Job]) -> list[Any]:
        """Hand jobs over; return a handle for each."""

    @abstractmethod
    def wait(self, handles: list[Any]) -> list[Any]:
        """Wait until a job has ended; return the handles of those that have."""

    @abstractmethod
    def result(self, handle: Any) -> JobReturn:
        """Return what a job returned, or raise what its process ended with."""

    @abstractmethod
    def stop(self) -> None:
        """Ask the jobs under way to stop after their step; asked again, at once."""

    @abstractmethod
    def end(self) -> None:
        """Leave nothing behind; called even where `begin` failed."""


def _lost(job: Job, error: Exception) -> JobError:
    """Mark a run whose process ended without a word as failed, and return that."""
    reason = " ".join(f"the job's process was lost: {type(error).__name__}: {error}".split())
    if "SIGKILL" in reason:
        reason = "the job's process was killed (SIGKILL); the system does so when memory runs out"
    if job.directory.is_dir() and not (job.directory / runs.DONE).exists():
        (job.directory / runs.FAILED).write_text(f"{reason}\n")
    return JobError(f"{job.directory}: {reason}")


def cores() -> int:
    """Return how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name not in ("", "-1")]
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(number) for number, _ in enumerate(listed.splitlines())]


def share(gpus: Sequence[str], each: float, place: int) -> list[str]:
    """Return the GPUs of one of several workers.

    Args:
        gpus: all there are.
        each: GPUs a worker: a whole number ≥ 1, or a fraction that several share one by.
        place: which worker, from 0; with more of them than fit it begins again with the first GPU.
    """
    if not gpus:
        return []
    if each < 1:
        return [gpus[place // round(1 / each) % len(gpus)]]
    return [gpus[(place * int(each) + offset) % len(gpus)] for offset in range(min(int(each), len(gpus)))]


def check_each(each: Any) -> float:
    """Return a number of GPUs a job if it is one, a whole number or 1 divided by one."""
    each = check_real("hydra.launcher.gpus", each, above=0)
    if each != int(each) and not (each < 1 and abs(1 / each - round(1 / each)) < 0.05):
        raise OptionError(f"hydra.launcher.gpus={each}: must be a whole number, or a fraction as 0.5 or 0.25")
    return each


def check_jobs(n_jobs: Any) -> int | None:
    """Return a number of jobs at once if it is one, or None."""
    return None if n_jobs is None else check_integer("hydra.launcher.n_jobs", n_jobs)


class Worker:
    """A process that runs one job after another, and keeps what it has imported.

    An executor of joblib's loky with one process, so that one that dies takes no other with it.
    """

    def __init__(self, place: int, environment: dict[str, str], output: Path) -> None:
        self.place, self.environment, self.output = place, environment, output
        self.start()

    def start(self) -> None:
        from joblib.externals.loky import ProcessPoolExecutor

        self.pool = ProcessPoolExecutor(
            1, initializer=_enter, initargs=(os.getpid(), self.output), env=self.environment
        )
        self.pid = self.pool.submit(os.getpid)

    def submit(self, job: Job) -> Any:
        return self.pool.submit(execute_elsewhere, job)

    def signal(self, number: int) -> None:
        if self.pid.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid.result(), number)
        else:
            self.end(kill=True)

    def end(self, kill: bool = False) -> None:
        self.pool.shutdown(wait=True, kill_workers=kill)


def _enter(sweep: int, output: Path) -> None:
    """Set up a worker: a session of its own, which Ctrl-C does not reach, its output in a file.

    It ends with the sweep, or its job would go on writing where the next start of the sweep goes on.
    """
    os.setsid()
    with output.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)

    def watch() -> None:
        while os.getppid() == sweep:
            time.sleep(POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if sys.platform == "linux":  # at once, and whatever the worker is doing
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Joblib(Engine):
    """Jobs side by side on this machine, in processes that stay, among which cores and GPUs are shared out.

    Args:
        n_jobs: at once; None for as many as there are GPUs for, and without GPUs as there are cores.
        gpus: a job, where there are any: a whole number, or a fraction that several jobs share one by.
    """

    def __init__(self, n_jobs: int | None = None, gpus: float = 1) -> None:
        self.n_jobs, self.gpus = check_jobs(n_jobs), check_each(gpus)
        self.idle: list[Worker] = []
        self.workers: dict[Any, Worker] = {}

    def begin(self) -> int:
        gpus = visible_gpus()
        n_jobs = self.n_jobs or max(1, int(len(gpus) / self.gpus) if gpus else cores())
        logs = Path(str(self.config.hydra.sweep.dir), ".workers").resolve()
        logs.mkdir(parents=True, exist_ok=True)
        for place in range(n_jobs):
            environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // n_jobs)))}
            if gpus:
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(share(gpus, self.gpus, place))
            self.idle.append(Worker(place, environment, logs / f"{place}.log"))
        self.idle.reverse()
        return n_jobs

    def submit(self, jobs: list[Job]) -> list[Any]:
        handles = []
        for job in jobs:
            worker = self.idle.pop()
            handles.append(worker.submit(job))
            self.workers[handles[-1]] = worker
        return handles

    def wait(self, handles: list[Any]) -> list[Any]:
        return list(futures.wait(handles, return_when=futures.FIRST_COMPLETED).done)

    def result(self, handle: Any) -> JobReturn:
        worker = self.workers.pop(handle)
        self.idle.append(worker)
        try:
            return handle.result()
        except futures.BrokenExecutor:
            worker.end(kill=True)
            worker.start()
            raise

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.signal(signal.SIGTERM)

    def end(self) -> None:
        for worker in self.workers.values():  # still busy, where this process fails
            worker.end(kill=True)
        for worker in self.idle:
            worker.end()


class Requeueable:
    """A job that submitit hands in again, as it is, when it is preempted or its time is over; it then goes on."""

    def __call__(self, job: Job) -> JobReturn:
        # SLURM sends it ahead of a preemption, and would not requeue a job that ended by it
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        return execute_elsewhere(job)

    def checkpoint(self, job: Job) -> Any:
        return import_extra("submitit", "launcher=slurm", "slurm").helpers.DelayedSubmission(self, job)


class Slurm(Engine):
    """Jobs of a SLURM cluster, handed in by submitit as an array.

    A job that is preempted, or whose time is over, is requeued and goes on from its last checkpoint. This process waits
    for all; without it they go on, and the same command finds what they came to.

    Args:
        cluster: slurm, or local: on this machine, which shows what would be done.
        n_jobs: handed in at once; None for all.
        requeues: how often a job whose time is over is handed in again.
        **parameters: of submitit's executor: timeout_min, cpus_per_task, gpus_per_node, slurm_partition, …
    """

    def __init__(
        self, cluster: str = "slurm", n_jobs: int | None = None, requeues: int = 10, **parameters: Any
    ) -> None:
        if cluster not in ("slurm", "local"):
            raise OptionError(f"hydra.launcher.cluster={cluster}: must be one of slurm, local")
        self.cluster, self.n_jobs = cluster, check_jobs(n_jobs)
        self.requeues = check_integer("hydra.launcher.requeues", requeues, minimum=0)
        self.parameters = {name: value for name, value in parameters.items() if value is not None}

    def begin(self) -> int | None:
        submitit = import_extra("submitit", "launcher=slurm", "slurm")
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
        except (RuntimeError, NameError, TypeError, ValueError) as error:
            raise OptionError(f"launcher=slurm: {' '.join(str(error).split())}") from None
        self.jobs: list[Any] = []
        return self.n_jobs

    def submit(self, jobs: list[Job]) -> list[Any]:
        handed_in = self.executor.map_array(Requeueable(), jobs)
        self.jobs += handed_in
        log.info("Handed in: %s", ", ".join(job.job_id for job in handed_in))
        return handed_in

    def wait(self, handles: list[Any]) -> list[Any]:
        while not (ended := [handle for handle in handles if handle.done()]):
            time.sleep(POLL if self.cluster == "local" else 5)
        return ended

    def result(self, handle: Any) -> JobReturn:
        return handle.result()

    def stop(self) -> None:
        for job in self.jobs:
            job.cancel(check=False)

    def end(self) -> None:
        pass


class Ray(Engine):
    """Jobs on a Ray cluster, or on this machine as one.

    Args:
        address: of the cluster, which sees the same files; None for this machine alone.
        n_jobs: at once; None for as many as there is room for.
        cpus: cores a job.
        gpus: a job, where there are any; with a fraction several jobs share one.
    """

    def __init__(self, address: str | None = None, n_jobs: int | None = None, cpus: float = 1, gpus: float = 1) -> None:
        self.address, self.n_jobs, self.gpus = address, check_jobs(n_jobs), check_each(gpus)
        self.cpus = check_real("hydra.launcher.cpus", cpus, above=0)

    def begin(self) -> int:
        self.ray = import_extra("ray", "launcher=ray", "ray")
        self.running: set[Any] = set()
        options: dict[str, Any] = {"address": self.address}
        if self.address is None:
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster that nobody else can join
            enough = None if self.n_jobs is None else max(cores(), int(self.n_jobs * self.cpus))
            options = {"address": "local", "num_cpus": enough, "include_dashboard": False}
        try:
            self.ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise OptionError(f"hydra.launcher.address={self.address}: {' '.join(str(error).split())}") from None
        total = self.ray.cluster_resources()
        gpus = self.gpus if total.get("GPU") else 0
        threads = {"OMP_NUM_THREADS": str(max(1, int(self.cpus)))}
        self.remote = self.ray.remote(
            num_cpus=self.cpus, num_gpus=gpus, max_retries=0, runtime_env={"env_vars": threads}
        )(execute_elsewhere)
        room = min(total["CPU"] / self.cpus, total["GPU"] / gpus if gpus else float("inf"))
        if room < 1:
            raise OptionError(f"hydra.launcher.cpus={self.cpus:g}, gpus={self.gpus:g}: the cluster has not as many")
        return min(self.n_jobs or int(room), int(room))

    def submit(self, jobs: list[Job]) -> list[Any]:
        handles = [self.remote.remote(job) for job in jobs]
        self.running.update(handles)
        return handles

    def wait(self, handles: list[Any]) -> list[Any]:
        return self.ray.wait(handles)[0]

    def result(self, handle: Any) -> JobReturn:
        self.running.remove(handle)
        return self.ray.get(handle)

    def stop(self) -> None:
        for handle in self.running:
            self.ray.cancel(handle)

    def end(self) -> None:
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()
