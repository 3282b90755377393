"""Sections of a report: the frame of a sweep or of the runs of a task, its tables, and the runs that are missing."""

from dataclasses import dataclass, field
from pathlib import Path

from gyral.reports.catalogue import Plan, job_of
from gyral.reports.frame import Frame, read_frames
from gyral.reports.tables import cells, layouts
from gyral.reports.tables.missing import find_missing, resume_command
from gyral.reports.tables.table import Table
from gyral.runs.run_record import RunRecord


@dataclass
class Section(Frame):
    """The report of a frame.

    Attributes:
        tables: its tables.
        footnotes: lines below the tables.
        absent: number of runs that were not started.
        commands: commands that start or continue the runs that are missing.
    """

    tables: list[Table] = field(default_factory=list)
    footnotes: list[str] = field(default_factory=list)
    absent: int = 0
    commands: list[str] = field(default_factory=list)

    @property
    def stopped(self) -> list[str]:
        """The state, the place and, if it failed, the reason of each run that is not done."""
        left = [record for record in self.records if not record.results]
        return [": ".join(filter(None, (record.state, record.place, record.reason))) for record in left]

    @property
    def shortfall(self) -> str:
        """The numbers of runs that were not started and that are not done, as text; empty if there are none."""
        counts = ((self.absent, "not started"), (len(self.stopped), "not done"))
        texts = [f"{count} {'run' if count == 1 else 'runs'} {state}" for count, state in counts if count]
        return f"{', '.join(texts)}." if texts else ""


def make_sections(
    records: list[RunRecord], directory: Path | None, only: str | None = None, plan: Plan | None = None, **which: bool
) -> list[Section]:
    """Return the sections of a report: one per table, then one per task for the other runs.

    Args:
        records: the runs.
        directory: the directory that contains them, None for runs from Weights & Biases.
        only, plan, **which: see `read_frames`.
    """
    plan = plan or Plan()
    sections = [_section(frame, directory, plan) for frame in read_frames(records, plan, only, **which)]
    left = {
        job_of(record.overrides.values()) for section in sections if not section.sweep for record in section.records
    }
    absent = plan.unnamed - left if left else ()
    if absent:  # they can be of any task, so they are reported once, in the last section
        sections[-1].absent = len(absent)
        sections[-1].commands = list(dict.fromkeys((plan.command, *sections[-1].commands)))
    return sections


def _section(frame: Frame, directory: Path | None, plan: Plan) -> Section:
    section = Section(frame.title, frame.rows, frame.sweep)
    section.tables = layouts.tables_of(section)
    section.footnotes = [*cells.mark_footnotes(frame.rows), *cells.mixed_footnotes(frame.rows, frame.sweep)]
    if frame.sweep:
        section.footnotes += [*layouts.reference_footnotes(section), *cells.source_footnotes(frame.rows)]
        section.absent, section.commands = find_missing(frame.sweep, frame.rows, directory)
    elif directory:
        jobs = {*plan.jobs}
        again = [
            plan.command if job_of(record.overrides.values()) in jobs else resume_command(record)
            for record in frame.records
            if not record.results and not record.running
        ]
        section.commands = list(dict.fromkeys(again))
    return section
