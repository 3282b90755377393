"""Sections of a report: the tables of a sweep or of the runs of a task, and the runs that are missing."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from gyral.config.groups import generated_choices, warn_skipped
from gyral.core.errors import UserError
from gyral.core.measures import Measure
from gyral.reports import catalogue
from gyral.reports.catalogue import Plan, Sweep, job_of
from gyral.reports.measures import with_measures
from gyral.reports.numbers import Numbers
from gyral.reports.rows import Row, rows_of, rows_of_tasks
from gyral.reports.tables.entries import mark_footnotes, source_footnotes
from gyral.reports.tables.lines_table import averages_table, groups_tables, lines_table
from gyral.reports.tables.missing import find_missing, is_stopped, resume_command
from gyral.reports.tables.paper_table import curves_table, paper_table
from gyral.reports.tables.references import reference_footnotes
from gyral.reports.tables.solved_table import solved_tables
from gyral.reports.tables.table import Table
from gyral.reports.tables.task_table import logged_measures, task_table
from gyral.runs.run_record import RunRecord


@dataclass(frozen=True)
class Section:
    """The report of one sweep, or of the runs of one task that belong to no sweep.

    Attributes:
        title: its title.
        measures: the measures of the tables, the main one first; none for a loss.
        rows: the rows with their runs.
        tables: its tables.
        footnotes: lines below the tables.
        stopped: runs that are not done.
        absent: number of runs that were not started.
        commands: commands that start or continue the runs that are missing.
        sweep: the sweep, None for runs that belong to no sweep.
    """

    title: str
    measures: tuple[Measure, ...]
    rows: list[Row]
    tables: list[Table]
    footnotes: list[str] = field(default_factory=list)
    stopped: list[RunRecord] = field(default_factory=list)
    absent: int = 0
    commands: list[str] = field(default_factory=list)
    sweep: Sweep | None = None

    @property
    def records(self) -> list[RunRecord]:
        return [record for row in self.rows for record in row.runs]

    @property
    def main(self) -> Measure | None:
        """The main measure of the tables, None for a loss."""
        return self.measures[0] if self.measures else None

    @property
    def measure(self) -> str:
        """The name of the main measure, or "loss"."""
        return self.main.name if self.main else "loss"

    @property
    def shortfall(self) -> str:
        """The number of runs that are missing or not done, as text; empty if there are none."""
        return f"Runs missing: {self.absent}, not done: {len(self.stopped)}." if self.stopped or self.absent else ""


def describe_stopped(record: RunRecord) -> str:
    """Return the state, the place and, if it failed, the reason of a run that is not done."""
    return ": ".join(filter(None, (record.state, record.place, record.reason)))


def make_sections(
    records: list[RunRecord], directory: Path | None, only: str | None = None, missing: bool = True
) -> list[Section]:
    """Return the sections of a report: one per table, then one per task for the other runs.

    Args:
        records: the runs.
        directory: the directory that contains them, None for runs from Weights & Biases.
        only: the name of a sweep that is shown alone, even without runs.
        missing: whether to show rows, columns and seeds of a sweep that have no run.
    """
    found, left = [], records
    experiments = (record.experiment for record in records)
    for sweep in (catalogue.load(only),) if only else catalogue.containing(experiments):
        mine = list(filter(sweep.has, records))
        if mine or only:
            try:
                sweep = with_measures(sweep, mine)
            except UserError as error:
                if only:
                    raise
                warn_skipped(f"{generated_choices('sweep')[sweep.name]}: {error}")
                continue
            left = [record for record in left if not sweep.has(record)]
            shown = sweep if missing else sweep.without_missing(mine)
            found.append(_section_of_sweep(shown, rows_of(shown, mine), directory))
    if only:
        return found
    plan = catalogue.planned(directory) if directory else Plan()
    tasks = rows_of_tasks(left, plan)
    others = [_section_of_task(task, rows, directory, plan) for task, rows in tasks.items()]
    absent = plan.unnamed - {job_of(record.overrides.values()) for record in left}
    if others and absent:  # they can be of any task, so they are reported once, in the last section
        commands = list(dict.fromkeys((plan.command, *others[-1].commands)))
        others[-1] = replace(others[-1], absent=len(absent), commands=commands)
    return found + others


def _section_of_sweep(sweep: Sweep, rows: list[Row], directory: Path | None) -> Section:
    numbers, footnotes = Numbers(rows, sweep), mark_footnotes(rows)
    if sweep.layout == "table":
        tables = [paper_table(sweep, rows, numbers)]
        footnotes += reference_footnotes(sweep, rows)
    elif sweep.layout == "tasks":
        tables = [averages_table(sweep, rows, numbers), lines_table(sweep, rows, numbers)]
    elif sweep.layout == "groups":
        tables = groups_tables(sweep, rows, numbers)
    elif sweep.layout == "solved":
        tables = solved_tables(sweep, rows, numbers)
    else:
        tables = [curves_table(sweep, rows, numbers)]
    footnotes += source_footnotes(rows)
    absent, commands = find_missing(sweep, rows, directory)
    stopped = [record for row in rows for record in row.runs if not record.results]
    measures = tuple(sweep.measures[name] for name in (sweep.measure, *sweep.also))
    return Section(sweep.title, measures, rows, tables, footnotes, stopped, absent, commands, sweep)


def _section_of_task(task: str, rows: list[Row], directory: Path | None, plan: Plan) -> Section:
    """Return the section of runs that belong to no sweep."""
    records = [record for row in rows for record in row.records]
    stopped = [record for record in records if not record.results]
    again = (
        plan.command if job_of(record.overrides.values()) in {*plan.jobs} else resume_command(record)
        for record in stopped
        if is_stopped(record)
    )
    commands = list(dict.fromkeys(again)) if directory else []
    main = tuple(logged_measures(records)[:1])
    table = task_table(f"Runs on {task}", rows, Numbers(rows))
    return Section(table.title, main, rows, [table], mark_footnotes(rows), stopped, commands=commands)
