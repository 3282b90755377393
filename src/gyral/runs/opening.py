"""Opening run directories for training: a new run, one that resumes, or one that becomes longer, and its records."""

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from gyral.config.overrides import undefer_option
from gyral.config.plain import as_config, plain_values
from gyral.config.resolvers import validation_interval
from gyral.config.roles import PROCESS, add_defaults, first_difference, identity_of, key_of, role_of
from gyral.core.commands import program, typed
from gyral.core.errors import OptionError, hide_passwords, one_line, printable
from gyral.core.files import UNFINISHED, write_atomically
from gyral.core.locks import lock_file
from gyral.core.measures import Measure, Remark
from gyral.core.progress import LogFile
from gyral.core.side_outputs import SideOutput
from gyral.runs.data_files import digests, make_paths_absolute, with_saved_paths
from gyral.runs.directory import (
    BUDGET,
    CONFIG,
    DONE,
    FAILED,
    LOCK,
    LOG,
    SWEEPS,
    Run,
    check_links,
    load_run,
    places_of_data,
    read_saved_run,
    resolve,
    with_data_at,
)
from gyral.runs.measures import write_measures
from gyral.runs.provenance import (
    OVERRIDES,
    add_commit,
    commits_of,
    git_commit,
    read_overrides,
    read_provenance,
    write_provenance,
)
from gyral.runs.saved_files import write_config, write_yaml

log = logging.getLogger(__name__)

RELEASE = 180  # seconds until a lock of a node that has failed is released; the lease of NFS is 90 seconds
HORIZONS = ("steps", "total_steps", "T_max")  # options of schedules, also of torch's, that are the length of a run


@contextmanager
def open_run(config: DictConfig) -> Iterator[Run]:
    """Open the run directory that Hydra chose for this job, for a new run, one to be resumed, or one that is DONE.

    A lock keeps other processes out of the directory. `record_run` writes the files of the run. If the body fails
    earlier, for example because of a wrong option, the directory of a new run alone is removed, and that of a new job
    of a sweep gets the same files with FAILED: its command is not at fault, and reports list the job with its reason.

    Raises:
        OptionError: the directory is in use, or holds a run of another configuration.
    """
    directory = Path(HydraConfig.get().runtime.output_dir)
    check_links(directory, "hydra.run.dir" if config.resume is None else "resume")
    try:
        # a job that SLURM has started again: a node that has failed holds its locks for a while, as those of NFS
        lock = lock_file(directory / LOCK, seconds=RELEASE if "SLURM_RESTART_COUNT" in os.environ else 0)
    except BlockingIOError:
        raise OptionError("hydra.run.dir", directory, "another process is running there") from None
    with lock:
        try:
            check_resume(config, directory)
            run = _existing_run(directory, config) if (directory / CONFIG).is_file() else None
            run = run or Run(directory, resolve(config), is_new=True)
            with _recorded_failure(run) if run.is_new and sweep_name() is not None else nullcontext():
                yield run
        finally:
            if [path.name for path in directory.iterdir()] == [LOCK]:
                (directory / LOCK).unlink()
                remove_empty(directory)


def _existing_run(directory: Path, config: DictConfig) -> Run | None:
    """Return the run in the directory, or None if it has neither results nor a checkpoint."""
    run = read_saved_run(directory)
    if config.resume is not None:
        run = load_run(directory, config.get("trust"), "resume")
        given = [o for o in HydraConfig.get().overrides.task if not o.startswith(("resume=", "trust="))]
        moved = moved_data()
        extra = [each for each in given if key_of(each) not in moved and not each.startswith(f"{BUDGET}=")]
        try:
            run = with_data_at(run, moved)
        except OptionError as error:  # an option of the task that names no data
            extra.append(f"{error.option}={error.value}")
        if extra:
            reason = f"uses the run's saved configuration, with {BUDGET}=<more steps> at most; leave out {extra[0]}"
            raise OptionError("resume", config.resume, reason)
        given = [override for override in given if key_of(override) not in moved]
        if given:
            longer = lengthened(run, config.trainer.max_steps)
            if run.sweep and longer is not run:
                reason = f"{config.resume} is a job of a sweep, whose jobs have equally many steps"
                instead = f"to continue all of them: {_longer_sweep(run, config)}"
                raise OptionError(BUDGET, config.trainer.max_steps, f"{reason}; {instead}")
            run = longer
    elif run.results is None and run.checkpoint is None:
        return None
    else:
        wanted = as_saved(run, resolve(config))
        if difference := difference_of(run, wanted):
            instead = "choose another directory, or resume the run with its saved configuration by resume=<directory>"
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                instead = "move or remove it, and the same command trains this job"
            reason = f"holds a run of another configuration ({difference}); {instead}"
            raise OptionError("hydra.run.dir", directory, reason)
        run = Run(directory, wanted, run.results, run.checkpoint)
    # a job that is DONE must not stand beside new jobs on other data; its results can be shown without its data
    if run.results is None or (config.resume is None and run.has_data()):
        run.check_data()
    if run.results is None:
        start = f"Resuming from {run.checkpoint}" if run.checkpoint else "No checkpoint found; starting from step 0"
        log.info("%s%s", start, other_commit(directory))
    return run


def other_commit(directory: Path) -> str:
    """Return a remark that a run was trained with another commit than that of the code, or an empty text."""
    saved, current = commits_of(directory)[-1:], git_commit()
    return "" if saved == [current] else f" (until now with commit {saved[0] if saved else None}, now {current})"


@contextmanager
def _recorded_failure(run: Run) -> Iterator[None]:
    """Write the files of a new job of a sweep if the body fails before `record_run` does, as it writes them."""
    (run.directory / FAILED).unlink(missing_ok=True)  # of an earlier start
    try:
        yield
    except Exception as error:
        if not (run.directory / FAILED).is_file():
            with SideOutput("The record of the failed job", "reports do not list it").guard():
                _write_start(run, [], [], {})
                _open_log(run.directory / LOG, error)
                _write_failure(run.directory)
        raise


def _write_start(
    run: Run, measures: Sequence[Measure], remarks: Sequence[Remark], data: dict[str, str] | None = None
) -> None:
    """Write the files with which a run begins.

    Args:
        run: the run.
        measures: the measures of its task.
        remarks: the remarks of its task.
        data: digests of its data. None: they are computed.
    """
    write_measures(run.directory, measures, remarks)
    if run.is_new:
        write_yaml(run.directory / OVERRIDES, HydraConfig.get().overrides.task)
        values = make_paths_absolute(plain_values(run.config))
        write_provenance(run.directory, sweep_name(), digests(values) if data is None else data, run.commits)
        write_config(run.directory / CONFIG, values)
    if run.checkpoint is not None:
        add_commit(run.directory)


def _write_failure(directory: Path) -> None:
    """Write FAILED with the traceback of the exception that is being handled."""
    write_atomically(directory / FAILED, printable(hide_passwords(traceback.format_exc())))


@contextmanager
def record_run(run: Run, measures: Sequence[Measure], remarks: Sequence[Remark]) -> Iterator[None]:
    """Write the files and the log of a run that starts or resumes in the body.

    If the body raises an exception, FAILED is written with the traceback. The caller writes DONE by `Run.finish`.

    Args:
        run: the run.
        measures: the measures of its task.
        remarks: the remarks of its task.
    """
    _write_start(run, measures, remarks)
    if run.is_longer:
        _write_length(run)
    if run.checkpoint is not None:
        from gyral.runs.before_end import undo_end  # now: a new run has no end

        undo_end(run.directory, run.config.trainer.max_steps)
    (run.directory / FAILED).unlink(missing_ok=True)
    for pattern in UNFINISHED:
        for unfinished in run.directory.glob(pattern):
            unfinished.unlink()
    _open_log(run.directory / LOG)
    try:
        yield
    except (Exception, SystemExit) as error:  # reports show every failure
        if isinstance(error, SystemExit) and error.code:
            raise  # with its own status, by which submitit requeues a job
        with suppress(OSError):  # the disk may be full, which is then the failure
            _write_failure(run.directory)
        if isinstance(error, SystemExit):  # a program that is not DONE must not end with status 0
            raise RuntimeError("the run was ended by sys.exit()") from error
        raise  # the caller still sees the exception


def _open_log(path: Path, error: Exception | None = None) -> None:
    """Write the log to a file, beginning with the messages that conf/train.yaml buffers until then.

    Args:
        path: the file.
        error: an error for the file alone, which ends the log.
    """
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, MemoryHandler):
            if error is not None:
                handler.emit(log.makeRecord(log.name, logging.ERROR, __file__, 0, one_line(error), (), None))
            file = LogFile(path)
            file.setFormatter(handler.formatter)
            handler.setTarget(file)
            handler.close()  # writes the buffered messages
            root.removeHandler(handler)
            root.addHandler(file)


def remove_empty(directory: Path) -> None:
    """Remove a directory that is empty, and the folders above it that Hydra created for it."""
    hydra = HydraConfig.get()
    top = Path(hydra.sweep.dir).resolve() if hydra.mode == RunMode.MULTIRUN else Path.cwd()
    for folder in (directory, *directory.parents):
        if folder == top or (folder != directory and not folder.is_relative_to(top)):
            break
        try:
            folder.rmdir()
        except OSError:  # it is not empty
            break


def moved_data() -> dict[str, str]:
    """Return the places of data on the command line of a run that resumes, by the keys of the options."""
    return places_of_data({key_of(each): each.partition("=")[2] for each in HydraConfig.get().overrides.task})


def _longer_sweep(run: Run, config: DictConfig) -> str:
    """Return the command of the sweep of a run with more steps."""
    command = [str(word) for word in read_provenance(run.directory).get("command") or ()][2:]
    words = [undefer_option(word) for word in command if not word.startswith(f"{BUDGET}=")]
    return typed([*program("train"), *words, f"{BUDGET}={config.trainer.max_steps}"])


def as_saved(run: Run, wanted: DictConfig) -> DictConfig:
    """Return a wanted configuration with what a saved run writes in another way: absolute paths, and its interval.

    The default interval of validations follows the number of steps with which a run has started.
    """
    key, saved = "val_check_interval", plain_values(run.config)
    values = with_saved_paths(saved, plain_values(wanted))
    interval, trainer = saved["trainer"].get(key), values["trainer"]
    given = [*HydraConfig.get().overrides.task]
    if (run.directory / OVERRIDES).is_file():
        given += read_overrides(run.directory)
    is_given = any(override.startswith(f"trainer.{key}=") for override in given)
    if interval is not None and not is_given and trainer.get(key) == validation_interval(trainer.get("max_steps")):
        trainer[key] = interval
    return as_config(values)


def difference_of(run: Run, wanted: DictConfig, **known: Any) -> str | None:
    """Return the first option that identifies a run and that a wanted configuration has with another value, or None.

    Args:
        run: the run, to whose configuration defaults are added that an earlier version did not have.
        wanted: a configuration that `as_saved` has returned.
        **known: options by key in place of those of the run.
    """
    values = plain_values(wanted)
    saved = identity_of(add_defaults(plain_values(run.config), values))
    return first_difference({**saved, **known}, identity_of(values))


def lengthened(run: Run, steps: Any) -> Run:
    """Return a run with more steps, which continues from its last checkpoint, also if it is DONE.

    Raises:
        OptionError: it cannot be continued, see `check_longer`.
    """
    values = plain_values(run.config)
    if steps == values["trainer"].get("max_steps"):
        return run
    check_longer(run, steps)
    config = as_config({**values, "trainer": {**values["trainer"], "max_steps": steps}})
    return replace(run, config=config, results=None, is_longer=True)


def check_longer(run: Run, steps: Any) -> None:
    """Check that a run can be continued with more steps.

    Raises:
        OptionError: the run has as many steps already, has ended before its last step, has no checkpoint, or has a
            schedule that ends with the run, so that another length would have changed its steps from the start.
    """
    before = run.config.trainer.get("max_steps")
    if not (isinstance(steps, int) and isinstance(before, int) and steps > before):
        raise OptionError(BUDGET, steps, f"must be more than {before}, the steps of {run.directory}")
    scheduler = run.config.get("scheduler") or {}
    ends = next((key for key in HORIZONS if scheduler.get(key) == before), None)
    if ends is not None:
        reason = f"scheduler.{ends}={before} ends with the run in {run.directory}: a longer one differs from its start"
        instead = f"train a new run with {BUDGET}={steps}, or one from its weights: weights={run.directory}"
        raise OptionError(BUDGET, steps, f"{reason}; {instead}")
    if run.results is not None and run.results["steps"] < before:
        ended = f"{run.directory} ended after {run.results['steps']:.0f} of its {before} steps"
        raise OptionError(BUDGET, steps, f"{ended}, by early stopping or pruning; train a new run without it")
    if run.checkpoint is None:
        raise OptionError(BUDGET, steps, f"{run.directory} has no checkpoint from which it could continue")


def _write_length(run: Run) -> None:
    """Write the number of steps of a run that is longer than before to its files.

    DONE is removed first and the configuration written last: if the process is killed in between, the run is that of
    before, and is tested again when it resumes.
    """
    (run.directory / DONE).unlink(missing_ok=True)
    kept = [override for override in read_overrides(run.directory) if not override.startswith(f"{BUDGET}=")]
    overrides = [*kept, f"{BUDGET}={run.config.trainer.max_steps}"]
    write_yaml(run.directory / OVERRIDES, OmegaConf.create(overrides))
    write_config(run.directory / CONFIG, plain_values(run.config))


def check_resume(config: DictConfig, directory: Path) -> None:
    """Raise `OptionError` if the option `resume` is set and Hydra chose another run directory than that."""
    if config.resume is not None and directory.resolve() != Path(config.resume).resolve():
        reason = f"is another directory than hydra.run.dir={directory}; use one of them"
        raise OptionError("resume", config.resume, reason)


def sweep_name() -> str | None:
    """Return the name of the sweep that this process runs a job of, or None if the job is not part of a sweep.

    It is the name of the sweep's directory, without outputs/sweep. Sweeps without their own directory share
    outputs/sweep; each is named by the overrides of its command, those with several values first.
    """
    hydra = HydraConfig.get()
    if hydra.mode != RunMode.MULTIRUN:
        return None
    directory, home = Path(hydra.sweep.dir).resolve(), Path(SWEEPS).resolve()
    if directory == home:
        given = [undefer_option(word) for word in sys.argv[1:] if not word.startswith(("-", "~"))]
        words = [word for word in given if role_of(word) != PROCESS]
        return " ".join(sorted(words, key=lambda word: (word.startswith(("threads", "trainer.")), "," not in word)))
    for above in (home, Path.cwd()):
        if directory.is_relative_to(above):
            return directory.relative_to(above).as_posix()
    return directory.name
