"""Train one model on one task: compose → build → fit → test. See `gyral train --help`."""

import logging
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from gyral.config import command_line
from gyral.config.composition import check_config
from gyral.core.commands import program, typed
from gyral.core.memory import limited_memory
from gyral.core.progress import line
from gyral.core.signals import Interrupted, stop
from gyral.runs.directory import CONFIG, Run, open_run, read_results, record_run
from gyral.runs.job import job_from_python
from gyral.runs.legacy import translate_override
from gyral.runs.records import read_run
from gyral.runs.run_record import RunRecord
from gyral.runs.summary import needed_trust, print_next_commands, print_results, relative_path

log = logging.getLogger(__name__)


def train(config: DictConfig) -> float:
    """Train one configuration in its run directory, and return the monitored metric, for searches."""
    if config.trainer.get("num_nodes", 1) != 1 and os.environ.get("NODE_RANK", "0") != "0":
        from gyral.training import worker

        return worker.join(config)["monitor"]  # the first node writes the records
    hydra = HydraConfig.get()
    generates = False
    with open_run(config) as run:
        if run.results is None:
            shows_progress = "progress_bar" in (run.config.callbacks or {})
            with line.show("loading PyTorch") if shows_progress else nullcontext():
                generates = fit_and_record(run)
        else:
            log.info("This run is DONE and is not trained again.")
    results = read_results(run.directory)
    if hydra.mode == RunMode.RUN:  # a sweep ends with the table of all its runs
        print_results(run.directory, results)
        given = None if config.resume else list(hydra.overrides.task)
        print_next_commands(run.directory, run.config, given, hydra.runtime.choices["model"], generates)
    return results["monitor"]


def fit_and_record(run: Run) -> bool:
    """Build a run, train it from the start or from its last checkpoint, and test it.

    Returns:
        whether `gyral generate` can be used with the run alone, without further options.
    """
    with stop.on_signals(), limited_memory():
        try:
            return _fit_and_record(run)
        except Interrupted:
            if (run.directory / CONFIG).is_file():  # else nothing was written yet
                words = [*program("train"), f"resume={relative_path(run.directory)}", *needed_trust(run.config)]
                log.info("Stopped. To resume: %s", typed(words))
            raise


def _fit_and_record(run: Run) -> bool:
    from gyral import generation
    from gyral.training import build, loggers, loop
    from gyral.training.ddp.peers import peer_processes

    line.begin("loading data and model")
    trainer, task, resumed_at = build.build_run(run)  # validates every option before anything is written
    with record_run(run):
        with loggers.open_loggers(run, resumed_at) as trainer.loggers:
            with peer_processes(trainer, run):
                results = loop.fit_and_test(trainer, task, run)
            picture = None
            if results["steps"] > 1:  # one point is no curve
                from gyral.reports.figures import loss_curve  # now: importing matplotlib would delay the first step

                picture = loss_curve.plot_losses(run.directory)
            loggers.log_results(trainer.loggers, results, picture)
        run.finish(results)
    return generation.needs_no_options(task)


def print_comparison(config: DictConfig) -> None:
    """Print the comparison of the runs of a sweep that has ended, and the commands that show and save it."""
    from gyral.reports import sweep_report

    sweep_report.print_comparison(config.hydra.runtime.choices.sweep, Path(str(config.hydra.sweep.dir)))


def fit(config: DictConfig, directory: str | Path | None = None) -> RunRecord:
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
    check_config(config)
    with job_from_python(config, directory) as path:
        try:
            with open_run(config) as run:
                if run.results is None:
                    fit_and_record(run)
        except Interrupted:
            raise KeyboardInterrupt from None
    return read_run(path)


def main() -> None:
    """Run `gyral train` with the arguments of the command line."""
    sys.argv[1:] = map(translate_override, sys.argv[1:])  # names of earlier versions
    command_line.main(train, "train", after_sweep=print_comparison)


if __name__ == "__main__":
    main()
