"""Evaluate a run's checkpoint on a split, with the run's own configuration.

    gyral evaluate run=outputs/copy/rum/<time> split=test

A language model can also be probed: `parse=` scores the trees that its gates imply, `pairs=` how often it prefers the
grammatical sentence of a minimal pair.
"""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gyral.applications.probes.report import ProbeReport, output_file
from gyral.config import command_line
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.runs.directory import Run, load_run
from gyral.runs.names import model_name
from gyral.runs.summary import print_metrics


def evaluate(config: DictConfig) -> dict[str, float]:
    """Print and return the metrics of a run's checkpoint on a split."""
    if OmegaConf.is_missing(config, "run") or config.run is None:
        raise OptionError("run", "<nothing>", "must be a run directory")
    split = check_choice("split", config.split, ("train", "val", "test"))
    run = load_run(Path(config.run), config.trust)

    if config.parse is not None or config.pairs is not None:
        return _probe(config, run)
    path = output_file(config.save)

    from gyral.training import build, checkpoints, evaluation

    build.configure_process(run.config)
    task = build.build_task(run.config)
    checkpoint = checkpoints.choose_checkpoint(run.directory, config.checkpoint)
    step = checkpoints.validate_checkpoint(task, checkpoint)
    if config.dynamic.rule is not None:
        evaluation.set_dynamic(task, **config.dynamic)
    trainer = build.build_trainer(build.single_process(run.config), run.directory, callbacks=[])
    metrics = evaluation.evaluate(trainer, task, split, checkpoint)
    print_metrics(f"{checkpoint} (step {step})", metrics)
    if path is not None:
        rows = [(name, f"{value:.8g}") for name, value in metrics.items()]
        ProbeReport(_title(run, step), ("metric", split), rows, numbers=metrics).write(path)
        print(path)
    return metrics


def _probe(config: DictConfig, run: Run) -> dict[str, float]:
    """Print and return the results of a probe of a language model, and save them."""
    if config.dynamic.rule is not None:
        raise OptionError("dynamic.rule", config.dynamic.rule, "must be null with parse= and pairs=")

    from gyral.applications.probes import command
    from gyral.training import build

    probe = command.prepare(config.parse, config.pairs, config.save, run.config.paths.data_dir)
    task, step = build.load_trained(run, config.checkpoint)
    return probe(task, _title(run, step))


def _title(run: Run, step: int) -> str:
    plain: Any = OmegaConf.to_container(run.config)
    return f"{model_name(plain)}, step {step:,}"


def main() -> None:
    """Run `gyral evaluate` with the arguments of the command line."""
    command_line.main(evaluate, "evaluate", literal=("parse", "save"))


if __name__ == "__main__":
    main()
