"""Names of rows, with the overrides in which they differ."""

from collections.abc import Sequence

from gyral.reports.catalogue import Row
from gyral.reports.tables.cells import CAPTION

SHARED = "; all with "  # before the overrides of all rows in a caption


def caption(shared: Sequence[str]) -> str:
    """Return the caption of a table whose runs share some overrides."""
    return f"{CAPTION}{SHARED}{' '.join(shared)}" if shared else CAPTION


def shared_setting(rows: list[Row]) -> tuple[str, ...]:
    """Return the overrides of all rows if they are the same, else nothing."""
    settings = {row.setting for row in rows if row.records}
    return settings.pop() if len(settings) == 1 else ()


def common_overrides(rows: list[Row]) -> list[str]:
    """Return each override that all rows have."""
    settings = [row.setting for row in rows if row.records]
    return [override for override in settings[0] if all(override in s for s in settings)] if settings else []


def label(row: Row, rows: list[Row]) -> str:
    """Return the name of a row, with its overrides if not all rows have the same."""
    own = () if row.setting == shared_setting(rows) else row.setting
    return "\n".join((row.name, *own))


def own_label(row: Row, rows: list[Row]) -> str:
    """Return the name of a row, with those of its overrides that not all rows have."""
    common = common_overrides(rows)
    return "\n".join((row.name, *(override for override in row.setting if override not in common)))
