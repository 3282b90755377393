"""Text that several formats share."""

from collections.abc import Iterator

from gyral.reports.tables.sections import Section
from gyral.runs.run_record import RunRecord


def one_line(label: str) -> str:
    """Return the lines of a row's name or of an entry as one."""
    return ", ".join(label.split("\n"))


def run_line(record: RunRecord) -> str:
    """Return the origin of a run in one line."""
    origin = record.provenance
    identity = f"W&B {origin.identity or 'unknown'}"
    parts = (f"seed {record.seed}", record.state, record.place, f"commit {origin.code}", identity)
    return ", ".join((*parts, origin.started) if origin.started else parts)


def labelled_runs(section: Section) -> Iterator[tuple[str, RunRecord]]:
    """Yield each run of a section with the name of its row."""
    for row in section.rows:
        for record in row.runs:
            yield one_line(row.label), record


def runs_table(section: Section) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of a table of the runs with their results; the last column has their commands.

    Columns without any entry are left out.
    """
    measures = section.measures if section.sweep else section.measures[:1]
    rows = []
    for label, record in labelled_runs(section):
        origin = record.provenance
        values = [(measure, measure.value(record.results)) for measure in measures]
        numbers = ["" if value is None else f"{value:.{measure.digits}f}" for measure, value in values]
        state = "" if record.results else record.state
        texts = [label, record.seed, state, *numbers, f"{record.steps:,}" if record.steps else "", record.place]
        rows.append([*texts, origin.code, origin.identity, origin.command or "unknown"])
    measured = [measure.title for measure in measures]
    heads = ["row", "seed", "state", *measured, "steps", "run", "commit", "W&B id", "command"]
    shown = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    return [heads[index] for index in shown], [[row[index] for index in shown] for row in rows]
