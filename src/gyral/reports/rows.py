"""The rows of reports: runs that differ only in their seed, their column and, in tables with steps, their budget.

Imports no torch.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from gyral.config.roles import IN_FOLDERS, SETTING, role_of, settings_of
from gyral.reports.catalogue import Plan, Sweep, job_of
from gyral.runs.directory import BUDGET
from gyral.runs.names import describe_option, row_names
from gyral.runs.run_record import RunRecord, select

WITH_STEPS = ("table", "curves")  # layouts with the steps of each entry, so that runs that differ in BUDGET are one row
GROUP = re.compile(r"\d+ [a-z]+")  # of test examples
UNVERIFIED = "?"  # the mark of published values that nobody has compared with the document
AVERAGE = "average"  # the published average over the lines of the layout "tasks"


@dataclass(frozen=True)
class Row:
    """Runs of one row of a report.

    Attributes:
        experiment: its name on the command line, empty for runs that belong to no sweep.
        setting: overrides as on the command line, empty for the values of the experiment.
        paper: its published values.
        records: the runs.
        others: runs with another `BUDGET` than those of their column in `records`, which only notes show.
        label: its name in the report, with the overrides that it does not share with all rows, one a line.
        trials: runs that have chosen options of `records`, and runs with values that they have not chosen; no number
            has theirs.
        source: where its published values come from, see `gyral.config.tables.Table.source`.
    """

    experiment: str
    setting: tuple[str, ...]
    paper: dict[str, Any]
    records: list[RunRecord]
    others: list[RunRecord] = field(default_factory=list)
    label: str = ""
    trials: list[RunRecord] = field(default_factory=list)
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """The mark of published values that nobody has compared with the document."""
        return UNVERIFIED if self.source.get("verified") is False else ""

    @property
    def name(self) -> str:
        return str(self.paper["row"])

    @property
    def runs(self) -> list[RunRecord]:
        """All runs, of all budgets, and those that no number has."""
        return [*self.records, *self.others, *self.trials]

    def published(self, measure: str, column: str = "") -> float | None:
        """Return the published value of a measure in a column or in a group of test examples, such as "7 operators"."""
        value = self.paper.get(measure)
        if isinstance(value, dict):
            # The last name is that of a choice of the group `column`.
            names = (column, column.partition(" ")[0], column.rpartition("/")[2])
            return next((value[name] for name in names if name in value), None)
        return None if GROUP.fullmatch(column) else value

    def published_groups(self, measure: str) -> dict[int, float]:
        """Return the published values of a measure by the number of the group of test examples."""
        values = self.paper.get(measure)
        return {int(number): float(value) for number, value in values.items()} if isinstance(values, dict) else {}


def rows_of(sweep: Sweep, records: Sequence[RunRecord]) -> list[Row]:
    """Sort runs into the rows of a sweep. Every row appears, and a row with several settings once for each.

    Models that are not a row, and have run by the protocol of the table, follow.
    """
    found: dict[str, dict[tuple[str, ...], list[RunRecord]]] = {}
    for record in filter(sweep.has, records):
        values = _values_of(record, _setting_of(sweep, record))
        found.setdefault(str(record.experiment), {}).setdefault(values, []).append(record)
    rows = [
        _row(sweep, experiment, _setting_of(sweep, same[0]) if same else (), same)
        for experiment in (*sweep.papers, *({sweep.protocol} & found.keys()))
        for _, same in sorted(found.get(experiment, {(): []}).items())
    ]
    common = common_overrides(rows)
    own = [[override for override in row.setting if override not in common] for row in rows]
    return [replace(row, label="\n".join((row.name, *words))) for row, words in zip(rows, own, strict=True)]


def _setting_of(sweep: Sweep, record: RunRecord) -> tuple[str, ...]:
    """Return the overrides of a run besides the sweep's axes and the budget, as on the command line.

    With the layout "tasks", the setting of a model for several lines also has the value of the sweep's column.
    """
    without = (sweep.column, *sweep.chosen, *((BUDGET,) if sweep.layout in WITH_STEPS else ()))
    settings = settings_of(record.overrides)
    own = [override for key, override in sorted(settings.items()) if key not in without]
    is_joint = sweep.layout == "tasks" and sweep.column_of(record) not in sweep.lines
    return (*own, f"{sweep.column}={sweep.column_of(record)}") if is_joint else tuple(own)


def _values_of(record: RunRecord, setting: Sequence[str]) -> tuple[str, ...]:
    """Return overrides with their values in the configuration: 1e-2 and 0.01 are the same."""
    options = record.options if setting else {}
    pairs = ((override, override.lstrip("+").partition("=")[0]) for override in setting)
    return tuple(f"{key}={options[key]}" if key in options else override for override, key in pairs)


def _row(sweep: Sweep, experiment: str, setting: tuple[str, ...], records: list[RunRecord]) -> Row:
    """Return the row of runs. In each column, those of one budget count."""
    counted, others = counted_runs(sweep, records), []
    trials = [record for record in records if record not in counted]
    if sweep.layout in WITH_STEPS:
        columns: dict[str, list[RunRecord]] = {}
        for record in counted:
            columns.setdefault(sweep.column_of(record), []).append(record)
        budgets = [by_budget(own) for own in columns.values()]
        counted = [record for first, *_ in budgets for record in first]
        others = [record for _, *rest in budgets for runs in rest for record in runs]
    if experiment in sweep.papers:
        paper = sweep.papers[experiment]
    else:  # a model that is not a row
        name = next(override.partition("=")[2] for override in setting if override.startswith("model="))
        paper, setting = {"row": name}, tuple(override for override in setting if override != f"model={name}")
    if sweep.layout == "tasks" and isinstance(paper.get(sweep.measure), float | int):
        paper = {**paper, sweep.measure: {AVERAGE: paper[sweep.measure]}}
    return Row(experiment, setting, paper, counted, others, trials=trials, source=sweep.sources.get(experiment, {}))


def counted_runs(sweep: Sweep, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs of a row that numbers have: of several values of a chosen option, those with the best.

    Of the values that runs have, it is the best in validation of the trials or, where no trial has ended, of the runs.
    """

    def place(record: RunRecord) -> tuple[str, ...]:
        return (sweep.column_of(record), *(str(select(record.config, key)) for key in sweep.chosen))

    def cost(record: RunRecord) -> float:
        score = record.metrics.get("monitor", math.nan)
        if not math.isfinite(score):
            return math.inf
        return -score if select(record.config, "task.mode") == "max" else score

    runs = [record for record in records if record.seed != sweep.chosen_by]
    places = {*map(place, runs)}
    trials = [record for record in records if record.seed == sweep.chosen_by and place(record) in places]
    trials = [trial for trial in trials if math.isfinite(cost(trial))]
    tried = {*map(sweep.column_of, trials)}
    costs: dict[tuple[str, ...], list[float]] = {}
    for record in (*trials, *(run for run in runs if sweep.column_of(run) not in tried)):
        costs.setdefault(place(record), []).append(cost(record))
    best: dict[str, tuple[str, ...]] = {}  # by column
    for own in sorted(costs, key=lambda own: fmean(costs[own])):
        best.setdefault(own[0], own)
    return [record for record in runs if place(record) == best[sweep.column_of(record)]]


def mixed_options(row: Row, sweep: Sweep | None) -> dict[str, list[str]]:
    """Return the values of the options in which runs of one number differ, as after a change of a file of `conf`."""
    columns: dict[str, list[RunRecord]] = {}
    for record in row.records:
        columns.setdefault(sweep.column_of(record) if sweep else "", []).append(record)
    found: dict[str, list[str]] = {}
    for own in columns.values():
        options = [record.options for record in own]
        for key in options[0]:
            values = [str(each.get(key)) for each in options if key in each]
            follows_seed = values == [record.seed for record in own]
            if len(values) == len(own) and len({*values}) > 1 and role_of(key) == SETTING and not follows_seed:
                found[key] = list(dict.fromkeys([*found.get(key, []), *values]))
    return found


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


def common_overrides(rows: Sequence[Row]) -> list[str]:
    """Return each override that all rows with runs have."""
    settings = [row.setting for row in rows if row.records]
    return [override for override in settings[0] if all(override in own for own in settings)] if settings else []


def rows_of_tasks(records: list[RunRecord], plan: Plan) -> dict[str, list[Row]]:
    """Sort runs that belong to no sweep by task, and within a task into rows that differ only in the seed.

    Tasks and rows are in the order of the plan, and others follow by name.
    """
    places = {job: place for place, job in enumerate(plan.jobs)}
    tasks: dict[str, dict[tuple[str, ...], tuple[tuple[str, ...], list[RunRecord]]]] = {}
    for record in sorted(records, key=lambda record: places.get(job_of(record.overrides.values()), math.inf)):
        own = (override for key, override in settings_of(record.overrides).items() if key not in IN_FOLDERS)
        model = record.overrides.get("experiment") or record.overrides.get("model") or f"model={record.cell}"
        setting = (model, *sorted(own))
        same = tasks.setdefault(record.task, {}).setdefault(_values_of(record, setting), (setting, []))
        same[1].append(record)
    rows = {}
    for task, settings in tasks.items() if places else sorted(tasks.items()):
        given = [*settings.values()]
        in_order = given if places else sorted(given, key=lambda each: [*map(_natural, each[0])])
        unnamed = [Row("", setting, {}, own) for setting, own in in_order]
        rows[task] = [replace(row, label=name) for row, name in zip(unnamed, name_rows(unnamed), strict=True)]
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


def task_options(rows: Sequence[Row]) -> list[str]:
    """Return the keys of the task's options that overrides set and that do not have the same value in all rows."""
    firsts = [row.records[0] for row in rows]
    keys = sorted({key for record in firsts for key in record.overrides if key.startswith("task.")})
    return [key for key in keys if any(select(r.config, key) != select(firsts[0].config, key) for r in firsts)]


def condition_of(row: Row, keys: Sequence[str]) -> str:
    """Return the values of options of the task in a row as text, such as "delay = 10"."""
    return ", ".join(describe_option(key, select(row.records[0].config, key)) for key in keys)


def by_condition(rows: Sequence[Row], without: Sequence[str] = ()) -> dict[str, dict[str, list[RunRecord]]]:
    """Return the runs of rows of one task by name, and for each name by the values of the task's options.

    Args:
        rows: the rows, with at least one run each.
        without: keys of other options that the names leave out: rows that differ in them are one.
    """
    keys = task_options(rows)
    same: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        setting = tuple(override for override in row.setting if override.partition("=")[0] not in (*keys, *without))
        same.setdefault(setting, []).append(row)
    found: dict[str, dict[str, list[RunRecord]]] = {}
    names = name_rows([own[0] for own in same.values()], (*keys, *without))
    for name, own in zip(names, same.values(), strict=True):
        for row in own:
            found.setdefault(name, {}).setdefault(condition_of(row, keys), []).extend(row.records)
    return found
