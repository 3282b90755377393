"""Run directories: configuration, provenance, metrics, checkpoints, and records of them for reports.

The package can be called: `gyral.runs("outputs")` is `gyral.runs.table.list_runs("outputs")`.
"""

import sys
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gyral.runs.table import RunTable


class _CallableModule(ModuleType):
    """The class of this package, so that `gyral.runs` is both the package and a function."""

    def __call__(self, directory: "str | PathLike[str]" = "outputs") -> "RunTable":
        """Return the runs below a directory, see `gyral.runs.table.list_runs`."""
        from gyral.runs.table import list_runs

        return list_runs(directory)


sys.modules[__name__].__class__ = _CallableModule
