"""The measures of a sweep's tables, from its runs or, if no run has them, from its task. Imports no torch."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hydra.utils import get_class
from omegaconf import OmegaConf

from gyral.config.composition import compose_with_hydra
from gyral.config.groups import find_config, find_generated_choice
from gyral.config.own_modules import config_folders
from gyral.config.tables import load_table
from gyral.core.checks import check_choice
from gyral.core.measures import Measure
from gyral.reports.catalogue import Sweep
from gyral.runs.run_record import RunRecord, measures_of


def with_measures(sweep: Sweep, records: Sequence[RunRecord]) -> Sweep:
    """Return a sweep with the measures that its file names.

    Args:
        sweep: the sweep.
        records: its runs. If none of them has a measure, as for published values alone, the task of the first row is
            asked, which imports it and with it PyTorch.

    Raises:
        OptionError: the task has no such measure.
    """
    options = {"report.measure": (sweep.measure,), "report.also": sweep.also}
    names = [name for own in options.values() for name in own]
    known = _of_tables(measures_of(records).values())
    if not known.keys() >= {*names}:
        known = {**_of_tables(task_measures(sweep.axes["experiment"][0])), **known}
    for option, own in options.items():
        for name in own:
            check_choice(option, name, tuple(known))
    return replace(sweep, measures={name: known[name] for name in names})


def task_measures(experiment: str) -> tuple[Measure, ...]:
    """Return the measures of the task of an experiment."""
    target = _class_of_task(experiment) or compose_with_hydra([f"experiment={experiment}"]).task._target_
    return _measures_of_class(target)


def _class_of_task(experiment: str) -> str | None:
    """Return the class of the task of a table's row, without composing; None if the files of the task do not say it."""
    file = find_generated_choice("experiment", experiment)
    if file is None:
        return None
    table = load_table(file)
    options = table.options(experiment.removeprefix(f"{table.experiment}/"))
    return None if "task._target_" in options else _class_named_by(str(options.get("task")))


def _class_named_by(task: str) -> str | None:
    """Return the class that the file of a task names; if it names none, the last of its list of defaults that does."""
    file = find_config("task", task)
    if not file.is_file():
        return None
    config = OmegaConf.load(file)
    bases = [base for base in OmegaConf.select(config, "defaults") or () if base != "_self_"]
    return OmegaConf.select(config, "_target_") or next(filter(None, map(_class_named_by, reversed(bases))), None)


def measures_of_all_tasks() -> dict[str, Measure]:
    """Return the measures of the tables of all tasks in conf/task by name. It imports these tasks."""
    files = [file for folder in config_folders() for file in sorted((folder / "task").rglob("*.yaml"))]
    targets = dict.fromkeys(filter(None, (OmegaConf.select(OmegaConf.load(file), "_target_") for file in files)))
    return _of_tables(measure for target in targets for measure in _measures_of_class(target))


def _measures_of_class(target: str) -> tuple[Measure, ...]:
    task: Any = get_class(target)
    measures: tuple[Measure, ...] = task.measures
    return measures


def _of_tables(measures: Iterable[Measure]) -> dict[str, Measure]:
    return {measure.name: measure for measure in measures if not measure.at_end}
