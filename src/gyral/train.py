"""Train one model on one task: compose → build → fit → test.

    python -m src.train model=rum task=copy

See `python -m src.train --help`.
"""

import logging
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gyral import report, runs
from gyral.config import command_line as cli
from gyral.core.signals import Interrupted, stop

log = logging.getLogger(__name__)


def train(config: DictConfig) -> float:
    """Run one configuration in its run directory; return its monitored metric, for searches over options."""
    if config.trainer.get("num_nodes", 1) > 1:
        from gyral.training import ddp as processes

        if processes.own_place(config).node_rank() > 0:  # the first node keeps the run
            return processes.join(config)["monitor"]
    with runs.open_run(config) as run:
        if run.results is None:
            run.finish(fit_and_test(run))
        else:
            log.info("This run is DONE and is not trained again.")
    results = runs.read_results(run.directory)
    report.print_results(run.directory, results)
    return results["monitor"]


def fit_and_test(run: runs.Run) -> dict[str, Any]:
    """Build, train from the start or the last checkpoint, test the best checkpoint; return what was measured."""
    from gyral.training import build
    from gyral.training import ddp as processes

    config = run.config
    build.prepare(config)
    task = build.build_task(config)
    resumed_at = build.check_fits(task, run.checkpoint) if run.checkpoint else 0
    if config.weights is not None and run.checkpoint is None:
        build.load_weights(task, Path(config.weights))
    with stop.on_signals(), build.build_loggers(config, run, resumed_at) as loggers:
        trainer = build.build_trainer(config, run.directory, loggers)
        try:
            with processes.together(trainer, run):
                results = fit_and_measure(trainer, task, run)
        except Interrupted:
            log.info("Stopped. To go on: python -m src.train resume=%s", run.directory)
            raise
        build.log_results(loggers, results)
        build.log_picture(loggers, report.plot_losses(run.directory))
        return results


def fit_and_measure(trainer: Any, task: Any, run: runs.Run) -> dict[str, Any]:
    """Do the part of `fit_and_test` that all processes of a run do."""
    from gyral.evaluate import measure
    from gyral.training import build
    from gyral.training.callbacks import summarize

    trainer.fit(task, datamodule=task.data, ckpt_path=run.checkpoint, weights_only=True)
    figures = summarize(trainer)
    checkpoint = build.choose_checkpoint(run.directory, "best") if trainer.checkpoint_callback else None
    metrics = measure(trainer, task, "test", checkpoint)
    trainer.strategy.barrier()  # none leaves while another may still hear from it
    return {**metrics, **figures}


def main() -> None:
    """Run `gyral train` on the command line's arguments."""
    cli.main(train, "train")


if __name__ == "__main__":
    main()
