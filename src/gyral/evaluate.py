"""Evaluate a run's checkpoint on a split, with the run's own configuration.

python -m src.evaluate run=outputs/copy/rum/<time> split=test
"""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gyral import report, runs
from gyral.config import command_line as cli
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError


def evaluate(config: DictConfig) -> dict[str, float]:
    """Print and return the metrics of a run's checkpoint on a split."""
    if OmegaConf.is_missing(config, "run"):
        raise OptionError("run=<nothing>: must be a run directory")
    split = check_choice("split", config.split, ("train", "val", "test"))
    run = runs.load(Path(config.run))

    from gyral.training import build

    build.prepare(run.config)
    task = build.build_task(run.config)
    checkpoint = build.choose_checkpoint(run.directory, config.checkpoint)
    step = build.check_fits(task, checkpoint)
    trainer = build.build_trainer(build.alone(run.config), run.directory, loggers=[], callbacks=[])
    results = measure(trainer, task, split, checkpoint)
    report.print_metrics(f"{checkpoint} (step {step})", results)
    return results


def measure(trainer: Any, task: Any, split: str, checkpoint: Path | None) -> dict[str, float]:
    """Return a task's metrics on a split, with the weights of a checkpoint or, if None, those it has."""
    trainer.test(task, task.data.loader(split), checkpoint, verbose=False, weights_only=True)
    return {name.replace("test/", f"{split}/"): value.item() for name, value in trainer.callback_metrics.items()}


def main() -> None:
    """Run `gyral evaluate` on the command line's arguments."""
    cli.main(evaluate, "evaluate")


if __name__ == "__main__":
    main()
