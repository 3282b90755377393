"""Train one model on one task: compose → build → fit → test. See `gyral train --help`."""

import logging
import os
import sys

from omegaconf import DictConfig

from gyral.config import command_line
from gyral.config.overrides import program
from gyral.core.signals import Interrupted, stop
from gyral.runs.directory import Run, open_run, read_results, record_run
from gyral.runs.legacy import translate_override
from gyral.runs.summary import print_results

log = logging.getLogger(__name__)


def train(config: DictConfig) -> float:
    """Train one configuration in its run directory, and return the monitored metric, for searches."""
    if config.trainer.get("num_nodes", 1) != 1 and os.environ.get("NODE_RANK", "0") != "0":
        from gyral.training import worker

        return worker.join(config)["monitor"]  # the first node writes the records
    with open_run(config) as run:
        if run.results is None:
            fit_and_record(run)
        else:
            log.info("This run is DONE and is not trained again.")
    results = read_results(run.directory)
    print_results(run.directory, results)
    return results["monitor"]


def fit_and_record(run: Run) -> None:
    """Build a run, train it from the start or from its last checkpoint, and test it."""
    from gyral.training import build, loggers, loop, loss_curve
    from gyral.training.ddp.peers import peer_processes

    trainer, task, resumed_at = build.build_run(run)  # validates every option before anything is written
    with record_run(run):
        with stop.on_signals(), loggers.open_loggers(run, resumed_at) as trainer.loggers:
            try:
                with peer_processes(trainer, run):
                    results = loop.fit_and_test(trainer, task, run)
            except Interrupted:
                log.info("Stopped. To resume: %s resume=%s", " ".join(program("train")), run.directory)
                raise
            loggers.log_results(trainer.loggers, results, loss_curve.plot_losses(run.directory))
        run.finish(results)


def main() -> None:
    """Run `gyral train` with the arguments of the command line."""
    sys.argv[1:] = map(translate_override, sys.argv[1:])  # names of earlier versions
    command_line.main(train, "train")


if __name__ == "__main__":
    main()
