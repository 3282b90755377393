"""Names of rows, with the overrides in which they differ."""

from collections.abc import Sequence

from gyral.reports.catalogue import Row
from gyral.reports.tables.entries import MEAN_OVER

CHECKPOINTS = "at the checkpoints with the best validation score"
SHARED = "; all with "  # before the overrides of all rows in a caption


def caption(shared: Sequence[str], runs: str = f"{MEAN_OVER} seeds") -> str:
    """Return the caption of a table.

    Args:
        shared: overrides that all of its runs share.
        runs: its start, which says what a number is a mean of, see `move_common_notes`.
    """
    text = f"{runs}, {CHECKPOINTS}"
    return f"{text}{SHARED}{' '.join(shared)}" if shared else text


def common_overrides(rows: list[Row]) -> list[str]:
    """Return each override that all rows have."""
    settings = [row.setting for row in rows if row.records]
    return [override for override in settings[0] if all(override in s for s in settings)] if settings else []


def label(row: Row, rows: list[Row]) -> str:
    """Return the name of a row and the overrides that it does not share with all rows."""
    common = common_overrides(rows)
    return "\n".join((row.name, *(override for override in row.setting if override not in common)))
