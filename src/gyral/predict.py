"""Predict for your own inputs with the model of a run: a row for each of them, with probabilities or real values.

    gyral predict run=outputs/sequences/gru/<time> data=new.csv save=predictions.csv

See `gyral predict --help`; with run=…, it shows what the task of the run reads.
"""

import logging
from collections.abc import Mapping
from inspect import getdoc
from pathlib import Path

from omegaconf import DictConfig

from gyral.config import offers
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.core.inputs import check_exists
from gyral.generation import tables
from gyral.runs.directory import CHECKPOINTS, load_run, places_of_data, with_data_at

log = logging.getLogger(__name__)
OWN = ("run", "data", "save", "checkpoint", "trust")


def predict(config: DictConfig, given: Mapping[str, str] | None) -> dict[str, float]:
    """Write the predictions for the inputs in a file, and return their metrics if the file has targets.

    Args:
        config: the options of the command.
        given: the new places of the data of the run. None: print what the task of the run reads.
    """
    if config.run is None:
        raise OptionError("run", "<nothing>", "must be a run directory")
    moved = places_of_data(given or {})
    run = with_data_at(load_run(Path(config.run), config.trust), moved)
    path = tables.output_table(config.save)
    if given is not None:  # before PyTorch is imported
        check_choice("checkpoint", config.checkpoint, CHECKPOINTS)
        check_exists("data", "" if config.data is None else str(config.data))

    from gyral.generation.output import write
    from gyral.runs.summary import print_metrics
    from gyral.training import build

    its_task = f"run={config.run}: its task, {run.config.task._target_},"
    predictor = build.task_class(run).predictor
    if not predictor:
        raise OptionError("data", str(config.data), f"{its_task} cannot predict for your own inputs")
    if given is None:
        [function] = offers.find_functions({"predictor": predictor}).values()
        print(f"{its_task} reads with data=…:\n\n  {(getdoc(function) or '').partition(chr(10))[0]}")
        return {}
    for name, value in given.items():
        if name not in moved:
            raise OptionError(name, value, f"no such option; allowed: {', '.join(OWN)}")
    if config.data is None:
        raise OptionError("data", "<nothing>", "must be a file with inputs")
    tables.check_place(path, config.data)

    task, step = build.load_for_inputs(run, config.checkpoint)
    predictions = task.predictions(config.data)
    if path is None:
        write(tables.csv_lines(predictions))
    else:
        tables.write_tables(predictions, path)
        print(path)
    title = f"{config.data}: {predictions.count:,} predictions of {config.run} (step {step:,})"
    if predictions.metrics:
        metrics = {f"test/{name}": value for name, value in predictions.metrics.items()}
        print_metrics(title, metrics, task.measures, to_error=path is None)
    else:
        log.info("%s", title)
    return predictions.metrics


def main() -> None:
    """Run `gyral predict` with the arguments of the command line."""
    offers.main(predict, "predict", OWN, literal=("data", "save"))


if __name__ == "__main__":
    main()
