"""Names of rows, with the overrides in which they differ."""

from collections.abc import Sequence

from gyral.reports.catalogue import Row
from gyral.reports.tables.cells import describe_seeds, describe_steps
from gyral.runs.run_record import RunRecord

CHECKPOINTS = "at the checkpoints with the best validation score"
SHARED = "; all with "  # before the overrides of all rows in a caption


def caption(shared: Sequence[str], records: Sequence[RunRecord] = ()) -> str:
    """Return the caption of a table.

    Args:
        shared: overrides that all of its runs share.
        records: the runs of one of its numbers, if all numbers have the same seeds and steps.
    """
    seeds = describe_seeds([record.seed for record in records]) if records else "seeds"
    steps = f", {describe_steps(records)}" if records else ""
    if len(records) == 1:
        text = f"{seeds}{steps}, {CHECKPOINTS}"
    else:
        text = f"mean ± standard deviation over {seeds}{steps}{' each' if steps else ''}, {CHECKPOINTS}"
    return f"{text}{SHARED}{' '.join(shared)}" if shared else text


def common_overrides(rows: list[Row]) -> list[str]:
    """Return each override that all rows have."""
    settings = [row.setting for row in rows if row.records]
    return [override for override in settings[0] if all(override in s for s in settings)] if settings else []


def label(row: Row, rows: list[Row]) -> str:
    """Return the name of a row, with those of its overrides that not all rows have."""
    common = common_overrides(rows)
    return "\n".join((row.name, *(override for override in row.setting if override not in common)))
