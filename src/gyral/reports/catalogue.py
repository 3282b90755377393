"""The sweeps of tables, which a report shows, and the plans of other sweeps. Imports no torch."""

import math
import os
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from gyral.config.groups import choices, find_generated_choice, generated_choices, usable_tables, warn_skipped
from gyral.config.overrides import combine, undefer_option, values_of_text
from gyral.config.roles import PROCESS, role_of
from gyral.config.tables import COLUMN, PROTOCOL, load_table, that_may_have
from gyral.core.checks import check_boolean, check_choice
from gyral.core.commands import program, typed
from gyral.core.errors import OptionError, UserError, suggest_name
from gyral.core.measures import ACCURACY, Measure
from gyral.runs.run_record import RunRecord, select
from gyral.runs.saved_files import read_yaml_as

DIRECTORY = Path("outputs/sweep")  # as set in conf/sweep/_base.yaml
PLAN = "multirun.yaml"
MOST_JOBS = 100_000  # of a plan
LAYOUTS = ("table", "tasks", "curves", "groups", "solved")


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
        solved: with the layout "tasks", a line counts as solved from this value of the measure, as printed; with the
            layout "solved", a run.
        also: more measures, as columns of a table without `column`.
        best_seed: with the layout "tasks", whether to show the seed of each line that is the best on the validation
            split, in addition to the mean over seeds.
        trained: with the layout "groups", the greatest group number among the training examples; None for all groups.
        chosen: the keys whose values the sweep chooses on the validation split.
        chosen_by: the seed of the runs that choose them, which are in no number; "" if nothing is chosen.
        levels: with the layout "solved", by column, values of the measure that have a meaning, such as that of a run
            that tracks no more than the sign of a permutation.
        protocol: the experiment with the options of all rows alone, which models have that are not a row.
        sources: where the published values of each row come from, see `gyral.config.tables.Table.source`.
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
    chosen: tuple[str, ...] = ()
    chosen_by: str = ""
    levels: dict[str, dict[float, str]] = field(default_factory=dict)
    protocol: str = ""
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)
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

    def head(self, column: str) -> str:
        """Return the head of a column."""
        return column.rpartition("/")[2] if self.column == COLUMN else f"{self.column_name}={column}"

    def has(self, record: RunRecord) -> bool:
        """Return whether a run is of a row of the table, or of another model by its protocol."""
        return record.experiment in self.papers or (record.experiment == self.protocol and "model" in record.overrides)

    def trains(self, experiment: str) -> bool:
        """Return whether a row is trained; otherwise it has published values alone."""
        return experiment in self.axes["experiment"]

    def column_of(self, record: RunRecord) -> str:
        """Return the column that a run belongs to, "" if there is a single one."""
        if self.column == COLUMN:  # a group, which is not a value of the configuration
            return record.overrides.get(COLUMN, "").partition("=")[2]
        return str(select(record.config, self.column)) if self.column else ""

    def with_rows(self, names: Container[str]) -> "Sweep":
        """Return the sweep with some of its rows alone."""
        papers = {name: paper for name, paper in self.papers.items() if name in names}
        trained = [name for name in self.axes["experiment"] if name in names]
        return replace(self, papers=papers, axes={**self.axes, "experiment": trained})

    def without_missing(self, records: list[RunRecord]) -> "Sweep":
        """Return the sweep without rows, columns and n-gram models that no run has. It expects no more seeds."""
        found: dict[str, set[str]] = {"seed": set()}
        if self.column and self.layout != "tasks":
            found[self.column] = {self.column_of(record) for record in records}
        kept = {key: [value for value in self.axes[key] if value in values] for key, values in found.items()}
        results = {name for record in records for name in record.results or {}}
        ngrams = tuple(order for order in self.ngrams if self.ngram_result(order) in results)
        without = {*self.axes["experiment"]} - {record.experiment for record in records}
        shown = self.with_rows(self.papers.keys() - without)
        return replace(shown, axes={**shown.axes, **kept}, ngrams=ngrams)

    def solved_count(self, values: Iterable[float]) -> int:
        """Return the number of runs that are solved, given the measure of each as tables print it."""
        return sum(value >= self.solved for value in values)

    def ngram_result(self, order: int) -> str:
        """Return the name of the result of the n-gram model of this order."""
        return f"test/ngram_{order}_{self.measure}"


@cache
def load(name: str) -> Sweep:
    """Return a sweep by its name.

    Raises:
        OptionError: it is none of a table, or a value of the table's section `report` is not allowed.
    """
    file = find_generated_choice("sweep", name)
    if file is None:
        reason = "is not a table: a file conf/table/<name>.yaml has rows and says how to show them"
        raise OptionError("sweep", name, reason)
    table = load_table(file)
    report = table.content["report"]
    return Sweep(
        name,
        str(report.get("title", name)),
        check_choice("report.layout", report.get("layout", LAYOUTS[0]), LAYOUTS),
        str(report.get("measure", ACCURACY.name)),
        report.get("column"),
        {key: list(map(str, values)) for key, values in table.axes.items()},
        table.papers,
        tuple(report.get("ngrams", ())),
        report.get("solved", math.inf),
        tuple(map(str, report.get("also", ()))),
        check_boolean("report.best_seed", report.get("best_seed", False)),
        report.get("trained"),
        tuple(key for key in table.choose if key != "seed"),
        str(table.choose.get("seed", "")),
        report.get("levels", {}),
        f"{table.experiment}/{PROTOCOL}",
        table.sources,
    )


def named() -> tuple[Sweep, ...]:
    """Return the sweeps of all tables, without those that cannot be used, about which a line is printed."""
    return _usable(generated_choices("sweep"))


def containing(experiments: Iterable[str | None]) -> tuple[Sweep, ...]:
    """Return the sweeps of the tables that have one of these experiments, as `named` does."""
    rows = {experiment for experiment in experiments if experiment}
    tables = usable_tables(that_may_have(rows))
    return _usable(table.file.stem for table in tables if not rows.isdisjoint(table.experiments))


def _usable(names: Iterable[str]) -> tuple[Sweep, ...]:
    found = []
    for name in sorted(names):
        try:
            found.append(load(name))
        except UserError as error:
            warn_skipped(f"{generated_choices('sweep')[name]}: {error}")
    return tuple(found)


def find(where: str) -> Path:
    """Return the directory of a sweep, given by its name or its directory; that of a table may not exist yet.

    Raises:
        OptionError: The directory of no table does not exist.
    """
    if len(Path(where).parts) > 1 and Path(where).is_dir():
        return Path(where)
    names = choices("sweep")
    directory = DIRECTORY / where if where in names else Path(where)
    if where in names or directory.is_dir():
        return directory
    parent = directory.parent if directory.parent.is_dir() else DIRECTORY.parent
    folders = [str(folder) for folder in parent.iterdir() if folder.is_dir()] if parent.is_dir() else []
    near = suggest_name(str(directory), [*folders, *names])
    if len(directory.parts) > 1:
        raise OptionError("sweep", where, f"there is no such directory; {near}".rstrip("; "))
    allowed = f"must be one of {', '.join(names)}, or a directory that contains runs"
    reason = f"there is neither such a table nor such a directory; {near}".rstrip() if near else allowed
    raise OptionError("sweep", where, reason)


@dataclass(frozen=True)
class Plan:
    """The jobs of the multirun that was last started in a directory.

    Attributes:
        jobs: the overrides of each job, in the order of the command line, see `job_of`.
        command: the command that starts the multirun and continues it.
        fault: the reason why the file of the plan cannot be read, or "".
        rows: the rows of a named sweep to which the command narrows it, None for all of them.
    """

    jobs: tuple[frozenset[str], ...] = ()
    command: str = ""
    fault: str = ""
    rows: frozenset[str] | None = None

    @property
    def unnamed(self) -> frozenset[frozenset[str]]:
        """The jobs that are not rows of named sweeps."""
        jobs = {job: _experiment_of(job) for job in self.jobs}
        rows = {name for sweep in containing(jobs.values()) for name in (*sweep.papers, sweep.protocol)}
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
    """The part of multirun.yaml that is read."""

    hydra: _Hydra


def planned(directory: Path) -> Plan:
    """Return the plan of a directory; it is empty for a named sweep, which has its own list of jobs."""
    if not os.path.lexists(directory / PLAN):
        return Plan()
    try:
        hydra = read_yaml_as(directory / PLAN, _Multirun).hydra
    except UserError as error:
        return Plan(fault=str(error))
    given = [undefer_option(override) for override in hydra.overrides.task]
    if not str(hydra.sweeper.get("_target_")).endswith((".BasicSweeper", ".Grid")) or hydra.sweeper.get("params"):
        rows = [values_of_text(override.partition("=")[2]) for override in given if override.startswith("experiment=")]
        return Plan(rows=frozenset(map(str, rows[-1])) if rows and rows[-1] else None)
    words = [override.partition("=") for override in given]
    axes = [(key, values_of_text(value) if equals else ["null"]) for key, equals, value in words]
    if any(values is None for _, values in axes) or math.prod(len(values or ()) for _, values in axes) > MOST_JOBS:
        return Plan()
    ours = [override for override in hydra.overrides.hydra if not override.startswith("hydra.mode=")]
    named = {key: [f"{key}={value}" for value in values or ()] for key, values in axes}
    try:
        combined = combine(named, hydra.sweeper.get("together") or ())
    except (OptionError, TypeError):  # the file may be somebody else's
        return Plan()
    jobs = dict.fromkeys(map(job_of, combined))
    return Plan(tuple(jobs), typed([*program("train"), "-m", *given, *ours]))


def job_of(overrides: Iterable[str]) -> frozenset[str]:
    """Return the overrides that determine a job, without those that choose where it runs and what it logs to."""
    return frozenset(override for override in overrides if role_of(override) != PROCESS)


def _experiment_of(job: frozenset[str]) -> str | None:
    found = (override.partition("=")[2] for override in job if override.startswith("experiment="))
    return next(found, None)
