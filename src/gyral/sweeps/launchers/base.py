"""Base classes of the launchers.

Gyral does not use Hydra's launcher plugins. With Hydra's joblib plugin, one worker that the system kills ends the whole
sweep, and when the sweep is killed, its workers continue to write. Hydra's submitit plugin reports only the first
failure. Hydra's Ray plugin cannot be installed with current versions of cloudpickle. The launchers here call joblib,
submitit and Ray directly, and all behave alike: a job that fails, or whose process dies, is reported with the reason,
and the other jobs continue. Imports no torch, and an engine only if it is chosen.
"""

import contextlib
import gc
import importlib
import io
import logging
import os
import signal
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

import gyral
from gyral.config import own_modules
from gyral.core.checks import check_integer
from gyral.core.errors import JobError
from gyral.core.memory import release_freed_memory
from gyral.core.pace import Pace
from gyral.core.signals import Interrupted, StopRequest, handlers
from gyral.core.streams import escape_streams
from gyral.runs.directory import DONE, FAILED

log = logging.getLogger(__name__)

POLL = 0.2  # seconds
STOPPING = "\nStopping the jobs after their current step; press Ctrl-C again to stop at once."


@dataclass(frozen=True)
class SweepJob:
    """One job of a sweep, as it is sent to the process that runs it.

    Attributes:
        number: the job's number, from 0.
        overrides: the job's overrides.
        config: the composed configuration, with Hydra's own section.
        directory: the run directory, absolute.
        context, function: Hydra's context and task function.
        command, cwd: command line and working directory of the sweep.
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
        """The run directory, relative to the working directory if it is inside."""
        return str(self.directory.relative_to(self.cwd) if self.directory.is_relative_to(self.cwd) else self.directory)


@dataclass(frozen=True)
class FinishedJob:
    """The outcome of a job.

    Attributes:
        job: the job.
        value: the job's return value.
        error: the error of a job that failed, else None.
        was_done: whether an earlier start of the sweep had finished the job.
    """

    job: SweepJob
    value: Any = None
    error: BaseException | None = None
    was_done: bool = False

    @classmethod
    def of(cls, job: SweepJob, returned: JobReturn) -> "FinishedJob":
        """Return the outcome that Hydra's return object holds."""
        error = error_of(returned)
        return cls(job, error=error) if error else cls(job, returned.return_value)


def error_of(returned: JobReturn) -> BaseException | None:
    """Return the error of a job that failed, or None."""
    if returned.status != JobStatus.FAILED:
        return None
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # Hydra announces the error there, and raises it
            _ = returned.return_value
    except Exception as error:
        return error
    return None


def execute(job: SweepJob, quiet: bool = False) -> JobReturn:
    """Run a job in this process; with `quiet`, without any output."""
    with contextlib.ExitStack() as stack:
        if quiet:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
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


def measure(job: SweepJob, seconds: float) -> Pace | None:
    """Return the pace of a job, measured in this process within about so many seconds, None if that is not possible."""
    hydra = HydraConfig.instance()
    previous = hydra.cfg
    try:
        hydra.set_config(job.config)  # interpolations read it
        config = job.config.copy()
        with read_write(config), open_dict(config):
            del config["hydra"]
        pace: Pace | None = vars(job.function)["measure"](config, seconds)
    except Exception:  # the job itself will report it
        log.debug("The time of a job is not measured", exc_info=True)
        return None
    finally:
        hydra.cfg = previous
    return pace


def prepare_worker(job: SweepJob) -> None:
    """Prepare a worker process, which may have run other jobs, for a job."""
    escape_streams()
    os.chdir(job.cwd)
    sys.argv[:] = job.command
    own_modules.set_command(job.command[1:])
    own_modules.add_user_modules()
    importlib.import_module("gyral.config.resolvers")  # registers the resolvers of the configuration


def measure_in_worker(job: SweepJob, seconds: float) -> Pace | None:
    """Return the pace of a job, measured in a worker process, see `measure`."""
    prepare_worker(job)
    return measure(job, seconds)


def execute_in_worker(job: SweepJob) -> JobReturn:
    """Run a job in a worker process, which may have run others.

    The returned object can be pickled, whatever the job's error is.
    """
    prepare_worker(job)
    returned = execute(job)
    returned.cfg = returned.hydra_cfg = None
    error = error_of(returned)
    if error and not isinstance(error, JobError):
        returned.return_value = JobError(f"{job.directory}: {type(error).__name__}; see {FAILED} there")
    gc.collect()  # a trainer and its callbacks refer to each other
    release_freed_memory()
    return returned


def check_n_jobs(n_jobs: Any) -> int | None:
    """Return a number of simultaneous jobs if it is an integer ≥ 1 or None, else raise `OptionError`."""
    return None if n_jobs is None else check_integer("hydra.launcher.n_jobs", n_jobs)


def add_to_python_path() -> None:
    """Add the folder of the package gyral to PYTHONPATH, so that workers import it from a checkout."""
    folder = Path(gyral.__file__).resolve().parents[1]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths and folder.name != "site-packages":  # an installed package needs no help
        paths.append(str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


class SweepLauncher(Launcher):
    """Base class of all launchers. Jobs are composed lazily, one by one, and reported as they end.

    Attributes:
        in_other_processes: whether jobs run in other processes, so that the sweeper has to report how they ended.
        running: the jobs that run in other processes, by their handles.
    """

    in_other_processes = True

    @property
    def at_once(self) -> int | None:
        """Number of jobs that run at the same time on this machine, None if it is not known."""
        return None

    def measure(self, job: SweepJob, seconds: float) -> Pace | None:
        """Return how long the parts of a job take, measured where it will run; None if that is not this machine.

        Args:
            job: the job.
            seconds: about how long measuring may take.
        """
        return None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.function, self.config = hydra_context, task_function, config
        self.running: dict[Any, SweepJob] = {}

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run a batch of jobs for one of Hydra's own sweepers."""
        returned = {}
        for finished in self.run(enumerate(job_overrides, initial_job_idx)):
            status = JobStatus.FAILED if finished.error else JobStatus.COMPLETED
            value = finished.error or finished.value
            returned[finished.job.number] = JobReturn(finished.job.overrides, status=status, _return_value=value)
        return [returned[number] for number in sorted(returned)]

    @abstractmethod
    def run(self, numbered: Iterable[tuple[int, Sequence[str]]]) -> Iterator[FinishedJob]:
        """Run jobs, given by number and overrides, as capacity allows; yield the outcome of each when it has ended.

        Raises:
            Interrupted: after Ctrl-C or SIGTERM, as soon as the running jobs have stopped.
        """

    def compose(self, number: int, overrides: Sequence[str]) -> SweepJob:
        """Return the job with a number and overrides."""
        config = self.context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        previous = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)  # interpolations of the run directory read this configuration
        try:
            sweep = Path(str(OmegaConf.select(config, "hydra.sweep.dir")))
            directory = (sweep / str(config.hydra.sweep.subdir)).resolve()
        finally:
            HydraConfig.instance().cfg = previous
        command, cwd = tuple(sys.argv), str(Path.cwd())
        return SweepJob(number, tuple(overrides), config, directory, self.context, self.function, command, cwd)


class ParallelLauncher(SweepLauncher):
    """Base class of the launchers that run jobs in other processes, through an engine such as joblib."""

    def run(self, numbered: Iterable[tuple[int, Sequence[str]]]) -> Iterator[FinishedJob]:
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        setup_globals()
        jobs = (self.compose(number, overrides) for number, overrides in numbered)
        with contextlib.ExitStack() as stack:
            stack.callback(self.end)
            capacity = self.begin()
            request = stack.enter_context(self._stopped_by_signals())
            while True:
                new: list[SweepJob] = []
                while (
                    not request.asked
                    and (capacity is None or len(self.running) + len(new) < capacity)
                    and (job := next(jobs, None))
                ):
                    if (job.directory / DONE).is_file():  # no worker is needed to read its results
                        yield replace(FinishedJob.of(job, execute(job, quiet=True)), was_done=True)
                    else:
                        new.append(job)
                if new and not request.asked:
                    request.deferrable = True  # `stop` knows the new jobs only when they are in `running`
                    self.running.update(zip(self.submit(new), new, strict=True))
                    request.deferrable = False
                    if request.asked:
                        self._stop(at_once=False)
                if not self.running:
                    break
                for handle in self.wait(list(self.running)):
                    job = self.running.pop(handle)
                    try:
                        finished = FinishedJob.of(job, self.result(handle, job))
                    except Interrupted:
                        request.add(signal.SIGTERM)  # only the job has received it
                    except Exception as error:
                        if (job.directory / DONE).is_file():  # its process died afterwards
                            yield FinishedJob.of(job, execute(job, quiet=True))
                        elif not request.asked:
                            yield FinishedJob(job, error=_mark_as_lost(job, error))
                    else:
                        yield finished
            if request.asked:
                raise Interrupted

    @contextlib.contextmanager
    def _stopped_by_signals(self) -> Iterator[StopRequest]:
        """Forward requests to stop to the jobs."""
        request = StopRequest()

        def handle(number: int, _: Any) -> None:
            was_asked = request.asked
            if request.add(number) and (was_asked or not request.deferrable):
                self._stop(at_once=was_asked)

        with handlers(handle):
            yield request

    def _stop(self, at_once: bool) -> None:
        """Ask the running jobs to stop, and print that they will."""
        self.stop(at_once)
        if not at_once:
            print(STOPPING, file=sys.stderr, flush=True)

    @abstractmethod
    def begin(self) -> int | None:
        """Start the engine; return the maximum number of simultaneous jobs, or None for no limit."""

    @abstractmethod
    def submit(self, jobs: list[SweepJob]) -> list[Any]:
        """Submit jobs; return a handle for each."""

    @abstractmethod
    def wait(self, handles: list[Any]) -> list[Any]:
        """Wait until at least one job has ended; return the handles of those that have."""

    @abstractmethod
    def result(self, handle: Any, job: SweepJob) -> JobReturn:
        """Return the return value of a job, or raise the error that ended its process."""

    @abstractmethod
    def stop(self, at_once: bool) -> None:
        """Ask the running jobs to stop, after their current step or at once.

        Raises:
            Interrupted: the sweep ends without waiting for them.
        """

    @abstractmethod
    def end(self) -> None:
        """Release all resources. This is called even if `begin` fails."""


def _mark_as_lost(job: SweepJob, error: Exception) -> JobError:
    """Write FAILED to the run directory of a job whose process died; return the error to report."""
    if isinstance(error, JobError):  # the launcher knows the reason
        reason = str(error).removeprefix(f"{job.directory}: ")
    else:
        reason = " ".join(f"the job's process died: {type(error).__name__}: {error}".split())
    if "SIGKILL" in reason:
        reason = "the job's process was killed (SIGKILL); the system does so when memory runs out"
    if job.directory.is_dir():
        with contextlib.suppress(OSError):  # the disk may be full; the sweep reports the reason, too
            (job.directory / FAILED).write_text(f"{reason}\n", encoding="utf-8", errors="backslashreplace")
    return JobError(f"{job.directory}: {reason}")
