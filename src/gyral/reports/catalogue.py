"""The sweeps of tables, which a report shows, and the rows that their runs belong to. Imports no torch."""

import itertools
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from gyral.config.groups import choices, load_table, served
from gyral.config.overrides import undefer_option, values_of_text
from gyral.config.roles import IN_FOLDERS, PROCESS, role_of, settings_of
from gyral.core.checks import check_boolean, check_choice
from gyral.core.commands import program, typed
from gyral.core.errors import OptionError, UserError, suggest_name
from gyral.core.measures import ACCURACY, Measure
from gyral.runs.names import row_names
from gyral.runs.run_record import RunRecord, select
from gyral.runs.saved_files import read_yaml_as

DIRECTORY = Path("outputs/sweep")  # as set in conf/sweep/_base.yaml
PLAN = "multirun.yaml"
MOST_JOBS = 100_000  # of a plan
LAYOUTS = ("table", "tasks", "curves", "groups")
BUDGET = "trainer.max_steps"  # runs that differ in it are in one row of the layouts whose entries have their steps
WITH_STEPS = ("table", "curves")


@dataclass(frozen=True)
class Sweep:
    """The sweep of a table and how a report shows it.

    Attributes:
        name: name of the table, as in sweep=<name>.
        title: title of the report.
        layout: one of `LAYOUTS`.
        measure: the name of a measure of the task: the metric of the tables, in the results of runs and in the node
            `paper`.
        column: the key whose values are the columns of a table, None for a single column. With the layout "tasks", the
            values are lines, and a row has its average over them.
        axes: the values of each key, in order; the values of `experiment` are the rows that are trained.
        papers: the published values of each row, also of those that are published only.
        ngrams: orders of the n-gram models below the rows.
        solved: with the layout "tasks", a line counts as solved from this value of the measure, as printed.
        also: more measures, as columns of a table without `column`.
        best_seed: with the layout "tasks", whether to show the seed of each line that is the best on the validation
            split, beside the mean over seeds.
        trained: with the layout "groups", the greatest group number among the training examples; None for all groups.
        measures: the measures named by `measure` and `also`, see `gyral.reports.measures.with_measures`.
    """

    name: str
    title: str
    layout: str
    measure: str
    column: str | None
    axes: dict[str, list[str]]
    papers: dict[str, dict[str, Any]]
    ngrams: tuple[int, ...] = ()
    solved: float = math.inf
    also: tuple[str, ...] = ()
    best_seed: bool = False
    trained: int | None = None
    measures: dict[str, Measure] = field(default_factory=dict)

    @property
    def main(self) -> Measure:
        """The measure of the tables."""
        return self.measures[self.measure]

    @property
    def lines(self) -> list[str]:
        """The values of `column` with the layout "tasks"."""
        assert self.column is not None, "a sweep with the layout tasks has a column"
        return self.axes[self.column]

    @property
    def column_name(self) -> str:
        """The last part of `column`: qa of task.qa. It is empty if there is a single column."""
        return (self.column or "").rpartition(".")[2]

    def is_published_only(self, row: "Row") -> bool:
        """Return whether the sweep does not train a row."""
        return row.experiment not in self.axes["experiment"]

    def without_missing(self, records: list[RunRecord]) -> "Sweep":
        """Return the sweep without rows, columns and n-gram models that no run has. It expects no more seeds."""
        found = {"experiment": {record.experiment for record in records}, "seed": set()}
        if self.column and self.layout != "tasks":
            found[self.column] = {column_of(self, record) for record in records}
        kept = {key: [value for value in self.axes[key] if value in values] for key, values in found.items()}
        results = {name for record in records for name in record.results or {}}
        ngrams = tuple(order for order in self.ngrams if self.ngram_result(order) in results)
        without = {*self.axes["experiment"]} - found["experiment"]
        papers = {name: paper for name, paper in self.papers.items() if name not in without}
        return replace(self, axes={**self.axes, **kept}, papers=papers, ngrams=ngrams)

    def ngram_result(self, order: int) -> str:
        """Return the name of the result of the n-gram model of this order."""
        return f"test/ngram_{order}_{self.measure}"


@dataclass(frozen=True)
class Row:
    """Runs of one row of a sweep that differ only in seed and column.

    Attributes:
        experiment: its name on the command line.
        setting: overrides as on the command line, empty for the values of the experiment.
        paper: its published values.
        records: the runs; empty if none was started.
        others: runs with another `BUDGET` than those of their column in `records`: only notes have their numbers.
    """

    experiment: str
    setting: tuple[str, ...]
    paper: dict[str, Any]
    records: list[RunRecord]
    others: list[RunRecord] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.paper["row"])

    @property
    def runs(self) -> list[RunRecord]:
        """All runs, of all budgets."""
        return [*self.records, *self.others]


@cache
def load(name: str) -> Sweep:
    """Return a sweep by its name.

    Raises:
        OptionError: it is none of a table, or a value of the table's section `report` is not allowed.
    """
    file = served("sweep").get(name)
    if file is None:
        reason = "is no table: a file conf/table/<name>.yaml has rows and says how to show them"
        raise OptionError("sweep", name, reason)
    table = load_table(file)
    report = table.content["report"]
    return Sweep(
        name,
        report["title"],
        check_choice("report.layout", report["layout"], LAYOUTS),
        str(report.get("measure", ACCURACY.name)),
        report.get("column"),
        {key: list(map(str, values)) for key, values in table.axes.items()},
        table.papers,
        tuple(report.get("ngrams", ())),
        report.get("solved", math.inf),
        tuple(map(str, report.get("also", ()))),
        check_boolean("report.best_seed", report.get("best_seed", False)),
        report.get("trained"),
    )


def named() -> tuple[Sweep, ...]:
    """Return the sweeps of all tables."""
    return tuple(load(name) for name in sorted(served("sweep")))


def containing(experiments: Iterable[str | None]) -> tuple[Sweep, ...]:
    """Return the sweeps of the tables that have one of these experiments."""
    wanted = {experiment for experiment in experiments if experiment}
    tables = served("experiment") if wanted else {}
    names = {tables[experiment].stem for experiment in wanted if experiment in tables}
    return tuple(load(name) for name in sorted(names))


def find(where: str) -> Path:
    """Return the directory of a sweep, given by its name or its directory.

    Raises:
        OptionError: The directory does not exist.
    """
    names = choices("sweep")
    directory = DIRECTORY / where if where in names else Path(where)
    if directory.is_dir():
        return directory
    if where in names:
        command = typed([*program("train"), f"sweep={where}"])
        raise OptionError("sweep", where, f"has not run yet; start it with: {command}")
    reason = f"must be one of {', '.join(names)}, or a directory that contains runs"
    raise OptionError("sweep", where, suggest_name(where, names) + reason)


@dataclass(frozen=True)
class Plan:
    """The jobs of the multirun that was last started in a directory.

    Attributes:
        jobs: the overrides of each job, in the order of the command line, see `job_of`.
        command: the command that starts the multirun and continues it.
        fault: the reason why the file of the plan cannot be read, or "".
    """

    jobs: tuple[frozenset[str], ...] = ()
    command: str = ""
    fault: str = ""

    @property
    def unnamed(self) -> frozenset[frozenset[str]]:
        """The jobs that are not rows of named sweeps."""
        jobs = {job: _experiment_of(job) for job in self.jobs}
        rows = {experiment for sweep in containing(jobs.values()) for experiment in sweep.papers}
        return frozenset(job for job, experiment in jobs.items() if experiment not in rows)


@dataclass(frozen=True)
class _Overrides:
    task: list[str]
    hydra: list[str]


@dataclass(frozen=True)
class _Hydra:
    overrides: _Overrides
    sweeper: dict[str, Any]


@dataclass(frozen=True)
class _Multirun:
    """What is read of multirun.yaml."""

    hydra: _Hydra


def planned(directory: Path) -> Plan:
    """Return the plan of a directory; it is empty for a named sweep, which has its own list of jobs."""
    if not os.path.lexists(directory / PLAN):
        return Plan()
    try:
        hydra = read_yaml_as(directory / PLAN, _Multirun).hydra
    except UserError as error:
        return Plan(fault=str(error))
    if not str(hydra.sweeper.get("_target_")).endswith((".BasicSweeper", ".Grid")) or hydra.sweeper.get("params"):
        return Plan()
    given = [undefer_option(override) for override in hydra.overrides.task]
    words = [override.partition("=") for override in given]
    axes = [(key, values_of_text(value) if equals else ["null"]) for key, equals, value in words]
    if any(values is None for _, values in axes) or math.prod(len(values or ()) for _, values in axes) > MOST_JOBS:
        return Plan()
    ours = [override for override in hydra.overrides.hydra if not override.startswith("hydra.mode=")]
    combined = itertools.product(*([f"{key}={value}" for value in values or ()] for key, values in axes))
    jobs = dict.fromkeys(map(job_of, combined))
    return Plan(tuple(jobs), typed([*program("train"), "-m", *given, *ours]))


def job_of(overrides: Iterable[str]) -> frozenset[str]:
    """Return the overrides that determine a job, without those that choose where it runs and what it logs to."""
    return frozenset(override for override in overrides if role_of(override) != PROCESS)


def _experiment_of(job: frozenset[str]) -> str | None:
    found = (override.partition("=")[2] for override in job if override.startswith("experiment="))
    return next(found, None)


def column_of(sweep: Sweep, record: RunRecord) -> str:
    """Return the column that a run belongs to, "" if there is a single one."""
    return str(select(record.config, sweep.column)) if sweep.column else ""


def columns_of(sweep: Sweep, rows: list[Row]) -> list[str]:
    """Return the values of the sweep's column, then other values of runs; [""] if there is a single column."""
    expected = sweep.axes[sweep.column] if sweep.column else [""]
    found = {column_of(sweep, record) for row in rows for record in row.records}
    return [*expected, *sorted(found - {*expected})]


def in_column(sweep: Sweep, row: Row, column: str) -> list[RunRecord]:
    """Return the runs of a row that belong to a column."""
    return [record for record in row.records if column_of(sweep, record) == column]


def setting_of(sweep: Sweep, record: RunRecord) -> tuple[str, ...]:
    """Return the overrides of a run besides the sweep's axes and the budget, as on the command line."""
    without = (sweep.column, BUDGET) if sweep.layout in WITH_STEPS else (sweep.column,)
    settings = settings_of(record.overrides)
    return tuple(override for key, override in sorted(settings.items()) if key not in without)


def by_budget(records: Iterable[RunRecord]) -> list[list[RunRecord]]:
    """Return the runs of each budget: first those with the most finished runs, and of equally many, the longest."""
    found: dict[str | None, list[RunRecord]] = {}
    for record in records:
        found.setdefault(record.overrides.get(BUDGET), []).append(record)

    def order(runs: list[RunRecord]) -> tuple[int, int]:
        budgets = [select(record.config, BUDGET) for record in runs]  # a transcribed run has none
        longest = max([budget for budget in budgets if isinstance(budget, int)] or [record.steps for record in runs])
        return sum(bool(record.results) for record in runs), longest

    return sorted(found.values(), key=order, reverse=True)


def rows_of(sweep: Sweep, records: list[RunRecord]) -> list[Row]:
    """Sort runs into the rows of a sweep. Every row appears, and a row with several settings once for each."""
    found: dict[str, dict[tuple[str, ...], list[RunRecord]]] = {}
    for record in records:
        if record.experiment in sweep.papers:
            found.setdefault(record.experiment, {}).setdefault(setting_of(sweep, record), []).append(record)
    return [
        _row(sweep, experiment, setting, same)
        for experiment in sweep.papers
        for setting, same in sorted(found.get(experiment, {(): []}).items())
    ]


def _row(sweep: Sweep, experiment: str, setting: tuple[str, ...], records: list[RunRecord]) -> Row:
    """Return the row of runs. In each column, those of one budget count."""
    counted, others = records, []
    if sweep.layout in WITH_STEPS:
        columns: dict[str, list[RunRecord]] = {}
        for record in records:
            columns.setdefault(column_of(sweep, record), []).append(record)
        budgets = [by_budget(own) for own in columns.values()]
        counted = [record for first, *_ in budgets for record in first]
        others = [record for _, *rest in budgets for runs in rest for record in runs]
    return Row(experiment, setting, sweep.papers[experiment], counted, others)


def rows_of_tasks(records: list[RunRecord], plan: Plan) -> dict[str, list[Row]]:
    """Sort runs that belong to no sweep by task, and within a task into rows that differ only in the seed.

    Tasks and rows are in the order of the plan, and others follow by name.
    """
    places = {job: place for place, job in enumerate(plan.jobs)}
    tasks: dict[str, dict[tuple[str, ...], list[RunRecord]]] = {}
    for record in sorted(records, key=lambda record: places.get(job_of(record.overrides.values()), math.inf)):
        own = (override for key, override in settings_of(record.overrides).items() if key not in IN_FOLDERS)
        model = record.overrides.get("experiment") or record.overrides.get("model") or f"model={record.cell}"
        tasks.setdefault(record.task, {}).setdefault((model, *sorted(own)), []).append(record)
    rows = {}
    for task, settings in tasks.items() if places else sorted(tasks.items()):
        in_order = settings if places else sorted(settings, key=lambda setting: [*map(_natural, setting)])
        unnamed = [Row("", setting, {}, settings[setting]) for setting in in_order]
        names = name_rows(unnamed)
        rows[task] = [replace(row, paper={"row": name}) for row, name in zip(unnamed, names, strict=True)]
    return rows


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts delay=20 before delay=100."""
    parts = (part.lstrip("0") if part.isdecimal() else part for part in re.split(r"(\d+)", text))
    return [(len(part), part) if index % 2 else (-1, part) for index, part in enumerate(parts)]


def name_rows(rows: Sequence[Row], without: Sequence[str] = ()) -> list[str]:
    """Return readable names of rows of one task; rows that would have the same name also show their overrides.

    Args:
        rows: the rows, with at least one run each.
        without: keys of options that the names leave out.
    """
    firsts = [row.records[0] for row in rows]
    given = [{key: value for key, value in record.overrides.items() if key not in without} for record in firsts]
    names = row_names([(record.config, overrides) for record, overrides in zip(firsts, given, strict=True)])
    for index, row in enumerate(rows):
        if "model" not in firsts[index].config:  # of Weights & Biases, which may lack it
            names[index] = row.setting[0].partition("=")[2] + names[index].removeprefix(firsts[index].cell)
    for name in {name for name in names if names.count(name) > 1}:
        same = [index for index, other in enumerate(names) if other == name]
        for index in same:
            own = [o for o in rows[index].setting if any(o not in rows[other].setting for other in same)]
            names[index] = ", ".join((name, *(o for o in own if o.partition("=")[0] not in without)))
    return names


def differing_task_options(rows: Sequence[Row]) -> list[str]:
    """Return the keys of the task's options that overrides set and that do not have the same value in all rows."""
    firsts = [row.records[0] for row in rows]
    keys = sorted({key for record in firsts for key in record.overrides if key.startswith("task.")})
    return [key for key in keys if any(select(r.config, key) != select(firsts[0].config, key) for r in firsts)]
