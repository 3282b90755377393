"""Evaluate a run's checkpoint on a split, with the run's own configuration, or as its task offers.

    gyral evaluate run=outputs/copy/rum/<time> split=test
    gyral evaluate run=outputs/sequences/gru/<time> data=labelled.csv

See `gyral evaluate --help`; with run=…, it shows what the task of the run offers, such as `dynamic.rule=` and the
probes `parse=` and `pairs=` of a language model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gyral.config import offers
from gyral.config.plain import plain_values
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.core.inputs import check_exists
from gyral.core.measures import printed
from gyral.runs.directory import CHECKPOINTS, Run, choose_checkpoint, load_run, places_of_data, with_data_at
from gyral.runs.evaluation_report import EvaluationReport, Request, output_file
from gyral.runs.names import model_name
from gyral.runs.summary import print_metrics

OWN = (
    "run",
    "split",
    "data",
    "checkpoint",
    "save",
    "trust",
)  # the other options are those that the task of the run offers


def evaluate(config: DictConfig, given: Mapping[str, str] | None) -> dict[str, float]:
    """Print and return the metrics of a run's checkpoint on a split, or the results of what the task offers.

    Args:
        config: the options of the command.
        given: the options of an evaluation that the task of the run offers, by name. None: print what it offers.
    """
    if OmegaConf.is_missing(config, "run") or config.run is None:
        raise OptionError("run", "<nothing>", "must be a run directory")
    split = check_choice("split", config.split, ("train", "val", "test"))
    moved = places_of_data(given or {})
    given = given and {key: value for key, value in given.items() if key not in moved}
    path = output_file(config.save) if given == {} else None  # what a task offers may write other files
    run = load_run(Path(config.run), config.trust)
    data = config.data
    if data is None and "task.data" in moved and run.has_other_content("task.data", moved["task.data"]):
        data = moved.pop("task.data")
    run = with_data_at(run, moved)
    if given is not None:  # before PyTorch is imported
        check_choice("checkpoint", config.checkpoint, CHECKPOINTS)
        check_exists("data", "" if data is None else str(data))

    from gyral import applications
    from gyral.training import build, loop

    offered = applications.offers("evaluations", build.task_class(run))
    its_task = f"run={config.run}: its task, {run.config.task._target_},"
    if given is None:
        print(offers.describe(offered, its_task, evaluations=True))
        return {}
    if data is not None:
        return evaluate_file(run, config, data, given)
    further, options = offers.choose_evaluation(offered, given, its_task, OWN) if given else (None, {})

    task, step = build.load_trained(run, config.checkpoint)
    plain: Any = plain_values(run.config)
    title = f"{model_name(plain)}, step {step:,}"
    if further is not None:
        try:
            results = further(task, Request(title, config.save, run.config.paths.data_dir), **options)
        except OptionError as error:
            raise offers.located(error, given) from None
        if results is not None:
            return results
        path = output_file(config.save)

    trainer = build.build_trainer(build.single_process(run.config), run.directory, callbacks=[])
    checkpoint = choose_checkpoint(run.directory, config.checkpoint)
    metrics = loop.evaluate(trainer, task, split, checkpoint)
    print_metrics(f"{checkpoint} (step {step})", metrics, task.measures)
    write_metrics(path, title, split, metrics, task)
    return metrics


def evaluate_file(run: Run, config: DictConfig, data: str, given: Mapping[str, str]) -> dict[str, float]:
    """Print and return the metrics of a run's checkpoint on all inputs of another file, which has targets.

    Args:
        run: the run.
        config: the options of the command.
        data: path of the file.
        given: the options of further evaluations, of which there must be none.
    """
    from gyral.training import build

    if config.split != "test" or given:
        name, value = next(iter(given.items()), ("split", config.split))
        raise OptionError(name, value, "must be left out with data=…, of which all rows are evaluated")
    path = output_file(config.save)
    task, step = build.load_for_inputs(run, config.checkpoint)
    predictions = task.predictions(data)
    for _ in predictions:
        pass
    if not predictions.metrics:
        raise OptionError("data", data, "has no targets, without which there are no metrics; gyral predict reads it")
    metrics = {f"test/{name}": value for name, value in predictions.metrics.items()}
    plain: Any = plain_values(run.config)
    print_metrics(f"{data}, {predictions.count:,} rows, with {config.run} (step {step:,})", metrics, task.measures)
    write_metrics(path, f"{model_name(plain)}, step {step:,}, {data}", data, metrics, task)
    return metrics


def write_metrics(path: Path | None, title: str, column: str, metrics: dict[str, float], task: Any) -> None:
    """Write metrics to a file, unless there is none, and print its path.

    Args:
        path: path of the file.
        title: what was evaluated.
        column: head of the column of the values.
        metrics: the metrics by name.
        task: the task, whose measures say how they are printed.
    """
    if path is not None:
        rows = [(name, printed(name, value, task.measures)) for name, value in metrics.items()]
        EvaluationReport(title, ("metric", column), rows, numbers=metrics).write(path)
        print(path)


def main() -> None:
    """Run `gyral evaluate` with the arguments of the command line."""
    offers.main(evaluate, "evaluate", OWN, literal=("data", "save"))


if __name__ == "__main__":
    main()
