"""Evaluate a run's checkpoint on a split, with the run's own configuration.

gyral evaluate run=outputs/copy/rum/<time> split=test
"""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from gyral.config import command_line
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.runs.directory import load_run
from gyral.runs.summary import print_metrics


def evaluate(config: DictConfig) -> dict[str, float]:
    """Print and return the metrics of a run's checkpoint on a split."""
    if OmegaConf.is_missing(config, "run") or config.run is None:
        raise OptionError("run", "<nothing>", "must be a run directory")
    split = check_choice("split", config.split, ("train", "val", "test"))
    run = load_run(Path(config.run), config.trust)

    from gyral.training import build, checkpoints, evaluation

    build.configure_process(run.config)
    task = build.build_task(run.config)
    checkpoint = checkpoints.choose_checkpoint(run.directory, config.checkpoint)
    step = checkpoints.validate_checkpoint(task, checkpoint)
    trainer = build.build_trainer(build.single_process(run.config), run.directory, callbacks=[])
    metrics = evaluation.evaluate(trainer, task, split, checkpoint)
    print_metrics(f"{checkpoint} (step {step})", metrics)
    return metrics


def main() -> None:
    """Run `gyral evaluate` with the arguments of the command line."""
    command_line.main(evaluate, "evaluate")


if __name__ == "__main__":
    main()
