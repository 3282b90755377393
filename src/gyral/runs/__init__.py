"""Run directories: configuration, provenance, metrics, checkpoints, and records of them for reports.

The package can be called: `gyral.runs("outputs")` is `gyral.runs.table.list_runs("outputs")`.
"""

from os import PathLike
from typing import TYPE_CHECKING

from gyral.core.modules import make_callable

if TYPE_CHECKING:
    from gyral.runs.table import RunTable


def _list_runs(directory: "str | PathLike[str]" = "outputs") -> "RunTable":
    from gyral.runs.table import list_runs  # imports modules of this package

    return list_runs(directory)


make_callable(__name__, _list_runs)
