"""Train one model on one task: compose → build → fit → test. See `gyral train --help`."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from gyral.config import command_line, signatures
from gyral.config.overrides import plain
from gyral.config.trust import find_object
from gyral.core.commands import program, typed
from gyral.core.errors import OptionError
from gyral.core.memory import limited_memory
from gyral.core.progress import line
from gyral.core.ranks import launched
from gyral.core.signals import Interrupted, stop
from gyral.runs.directory import CONFIG, DONE, Run, checkpoint_of_weights, find_checkpoint, read_results
from gyral.runs.opening import open_run, record_run
from gyral.runs.summary import needed_trust, print_next_commands, print_results, relative_path

if TYPE_CHECKING:
    from pytorch_lightning import Trainer

    from gyral.core.pace import Pace
    from gyral.runs.run_record import RunRecord
    from gyral.tasks.base import Task
    from gyral.training.ddp.group import Group

log = logging.getLogger(__name__)

IS_DONE = "The run is DONE, and ends"  # what a signal after the last step prints


def train(config: DictConfig) -> float:
    """Train one configuration in its run directory, and return the monitored metric, for searches."""
    check_launcher()
    hydra = HydraConfig.get()
    generates = predicts = False
    with launched_processes(config) as group:
        if group is not None and group.rank > 0:
            return join(config, group)["monitor"]  # process 0 writes the records
        with open_run(config) as run:
            if run.results is None:
                if config.resume is None:  # with what a resumed run does not use
                    from gyral.config.instantiation import check_values  # now: --help does not need it

                    check_values(config, hydra.overrides.task)
                    check_files(config.task)
                shown = "progress_bar" in (run.config.callbacks or {})
                with continuing(run) as run, line.show("loading PyTorch") if shown else nullcontext():
                    task = fit_and_test(run, group)
                generates, predicts = generates_without_options(task), bool(task.predictor)
            else:
                log.info("This run is DONE and is not trained again.")
    results = read_results(run.directory)
    if hydra.mode == RunMode.RUN:  # a sweep ends with the table of all its runs
        with stop.deferred(IS_DONE):
            print_results(run.directory, results, published_results(run.directory) if run.config.get("paper") else None)
            given = None if config.resume else list(hydra.overrides.task)
            ended = replace(run, results=results, checkpoint=find_checkpoint(run.directory))
            print_next_commands(ended, given, hydra.runtime.choices["model"], generates, predicts)
    return results["monitor"]


def continuing(run: Run) -> AbstractContextManager[Run]:
    """Return a context of a run that continues a shorter one of the same job, if the run is a new job of a sweep."""
    if HydraConfig.get().mode == RunMode.RUN:
        return nullcontext(run)
    from gyral.runs import shorter  # now: a run alone continues none

    return shorter.continued(run)


def published_results(directory: Path) -> dict[str, str]:
    """Return the published values for the row of a table to which a run belongs."""
    from gyral.core.side_outputs import SideOutput
    from gyral.reports import published  # now: most runs are of no table

    found: dict[str, str] = {}
    with SideOutput("The published numbers", "to see them: the report of the table").guard():
        found = published.published_results(directory)
    return found


def check_launcher() -> None:
    """Check that this process does not train what the user wants to submit: only sweeps have launchers.

    Raises:
        OptionError: a launcher for several processes without -m.
    """
    hydra = HydraConfig.get()
    launcher = hydra.runtime.choices["launcher"]
    if hydra.mode == RunMode.RUN and launcher not in ("default", "local"):
        raise OptionError("launcher", launcher, "runs the jobs of a sweep, even if there is only one; add -m")


def check_files(task: DictConfig | None) -> None:
    """Check that the files of a task's data exist, before PyTorch is imported.

    Data that a function `load` makes are checked by a function `check_load` in the same module, if there is one, which
    takes some of the options.

    Raises:
        OptionError: a file does not exist.
    """
    sections = {} if task is None else {name: node for name, node in task.items() if isinstance(node, DictConfig)}
    for name, node in sections.items():
        module, _, function = str(node.get("_target_")).rpartition(".")
        if options := signatures.options_of(check := f"{module}.check_{function}"):
            values: Any = OmegaConf.to_container(node, resolve=True)
            try:
                find_object(check)(**{option: values[option] for option in options if option in values})
            except OptionError as error:
                raise OptionError(f"task.{name!s}.{error.option}", error.value, error.reason) from None


def launched_processes(config: DictConfig) -> "AbstractContextManager[Group | None]":
    """Return the processes that a launcher such as srun or torchrun has started for a run, None for a run alone."""
    if launched() is None and "NODE_RANK" not in os.environ:
        return nullcontext()
    from gyral.training.ddp import group  # now: it imports PyTorch

    return group.meet(config)


def join(config: DictConfig, group: "Group") -> dict[str, Any]:
    """Take part in a run as a process that does not write its records, and return the final metrics."""
    from gyral.training import worker

    return worker.join(config, group)


def fit_and_test(run: Run, group: "Group | None" = None) -> "Task":
    """Train a run from the start or from its last checkpoint, test its best checkpoint, and return its task.

    Every option is validated before anything is written. The records, the log and the marker DONE or FAILED are those
    of `record_run`.

    Args:
        run: the run.
        group: the processes that a launcher has started for it, if it has.
    """
    if run.checkpoint is None and run.config.weights is not None:
        checkpoint_of_weights(run.config.weights)  # first: the next line takes seconds
    from gyral.training import build, checkpoints, loggers, loop

    environment = None
    if group is not None:
        run, environment = replace(run, config=group.configured(run.config)), group.environment
    config = run.config
    with stoppable(run), build.configured_process(config):
        line.begin("loading data and model")
        # The task makes its data, and then its model from the sizes of the data.
        task = build.build_task(config)
        callbacks = build.build_callbacks(config, task)
        loggers.check_loggers(config)
        trainer = build.build_trainer(config, run.directory, callbacks, environment)
        resumed_at = checkpoints.prepare_start(task, run)

        with (
            record_run(run, task.measures, task.remarks),
            loggers.open_loggers(run, resumed_at) as trainer.loggers,
        ):
            log.info(loop.describe(trainer, task))
            with peer_processes(trainer, run, group):
                loop.fit(trainer, task, run)
                results = loop.test(trainer, task, run)
            with stop.deferred(IS_DONE):
                run.finish(results)  # first: what follows is optional
                loggers.log_results(trainer.loggers, results, loss_curve(run, results["steps"]), task, run)
    return task


def peer_processes(trainer: "Trainer", run: Run, group: "Group | None") -> AbstractContextManager[None]:
    """Return a context in which the other processes of DDP take part in a run, if there are any."""
    if not hasattr(trainer.strategy, "cluster_environment"):
        return nullcontext()
    from gyral.training.ddp import peers  # now: most runs have one process

    return peers.peer_processes(trainer, run, group)


@contextmanager
def stoppable(run: Run) -> Iterator[None]:
    """Stop a run after a step on Ctrl-C or SIGTERM, and log the command that resumes it, or that it is DONE."""
    with stop.on_signals(), limited_memory():
        try:
            yield
        except Interrupted:
            is_written, is_done = ((run.directory / name).is_file() for name in (CONFIG, DONE))
            if is_done:
                log.info("Stopped after the end: the run in %s is DONE", relative_path(run.directory))
            elif is_written:  # else there is nothing to resume
                words = [*program("train"), f"resume={relative_path(run.directory)}", *needed_trust(run.config)]
                log.info("Stopped. To resume%s: %s", " this run alone" if run.sweep else "", typed(words))
            raise


def loss_curve(run: Run, steps: int) -> Path | None:
    """Draw the losses of a run, and return the path of the picture, or None: a single point is not a curve."""
    if steps < 2:
        return None
    from gyral.core.side_outputs import SideOutput

    def draw() -> Path:
        from gyral.figures import loss_curve  # now: importing matplotlib would delay the first step

        return loss_curve.plot_losses(run.directory)

    path: Path | None = SideOutput("The plot of the losses", "it is missing in the run directory").call(draw)
    return path


def generates_without_options(task: "Task") -> bool:
    """Return whether a generator of a task runs without options, so that its command can be suggested."""
    if not task.generators:
        return False
    from gyral.config import offers  # now: most tasks generate nothing

    return any(not offers.required(generator) for generator in offers.find_functions(task.generators).values())


def check_options(config: DictConfig, section: str) -> None:
    """Raise `UserError` for an option of a section of a job's configuration that the job would refuse."""
    from gyral.training import build  # now: it imports PyTorch

    build.check_options(config, section)


def measure_pace(config: DictConfig, seconds: float) -> "Pace | None":
    """Return how long the parts of a job take, measured on a few steps within about so many seconds."""
    from gyral.training import pace  # now: it imports PyTorch

    return pace.measure_pace(config, seconds)


def print_comparison(config: DictConfig) -> None:
    """Print the comparison of the runs of a sweep that has ended, and the commands that show and save it."""
    from gyral.core.side_outputs import SideOutput
    from gyral.reports import sweep_report

    directory = Path(str(config.hydra.sweep.dir))
    show = typed([*program("report"), plain(f"sweep={relative_path(directory)}")])
    with SideOutput("The comparison of the runs", f"to print it: {show}").guard():
        sweep_report.print_comparison(config.hydra.runtime.choices.sweep, directory)


def fit(config: DictConfig, directory: str | Path | None = None) -> "RunRecord":
    """Train a configuration in a run directory, as the command `gyral train` does, and return the record of the run.

    A run that is DONE is not trained again, and one that was stopped resumes. If cells or tasks are defined in modules
    of the current directory, a folder conf/ with their options must be there, too.

    Args:
        config: the configuration, as `gyral.compose` returns it.
        directory: the run directory. None: a new one, outputs/<task>/<model>/<time>.

    Raises:
        UserError: an option that is not allowed, or a directory that holds a run of another configuration.
        KeyboardInterrupt: the run was stopped by Ctrl-C.
    """
    from gyral.config.instantiation import check_config  # now: the command does not need them
    from gyral.runs.job import job_from_python

    check_config(config)
    with job_from_python(config, directory) as path:
        try:
            with launched_processes(config) as group:
                if group is not None and group.rank > 0:
                    path = group.directory
                    join(config, group)
                else:
                    with open_run(config) as run:
                        if run.results is None:
                            fit_and_test(run, group)
                            if stop.asked:  # after the last step; the run is DONE
                                raise Interrupted
        except Interrupted:
            raise KeyboardInterrupt from None
    from gyral.runs.records import read_run

    return read_run(path)


def main() -> None:
    """Run `gyral train` with the arguments of the command line."""
    if any(word.startswith("resume=") for word in sys.argv):  # new places of data are options of the run's own task
        sys.argv[1:] = [f"++{word}" if word.startswith("task.") else word for word in sys.argv[1:]]
    command_line.main(train, "train", after_sweep=print_comparison, check_options=check_options, measure=measure_pace)


if __name__ == "__main__":
    main()
