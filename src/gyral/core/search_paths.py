"""Where a command and its child processes look for modules and programs: not in the current directory."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

PACKAGES = str(Path(__file__).resolve().parents[2])  # the directory of the package gyral


def leave_out_current_directory() -> None:
    """Keep this process and its children from importing modules or starting programs of the current directory.

    The current directory may be a run or a corpus of somebody else, with a file torch.py or a program git. Python puts
    it first on the path of modules for `python -m`, for `python -c`, and for an empty entry of PYTHONPATH, as
    `PYTHONPATH=$PYTHONPATH:/more` makes one. Entries that PYTHONPATH names stay. An own directory follows after the
    installed packages, see `gyral.config.own_modules`.
    """
    here = os.getcwd()
    named = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    library = os.path.dirname(os.__file__)  # script and PYTHONPATH are before it, installed packages behind it
    own = sys.path.index(library) if library in sys.path else len(sys.path)
    if here not in (PACKAGES, *named):
        sys.path[:own] = [entry for entry in sys.path[:own] if entry and os.path.abspath(entry) != here]
    for variable, keep in (("PYTHONPATH", bool), ("PATH", os.path.isabs)):
        if variable in os.environ:
            os.environ[variable] = _entries(variable, keep)
    os.environ["PYTHONSAFEPATH"] = "1"  # of all Python processes that this one starts


def find_program(name: str) -> str | None:
    """Return the full path of a program of PATH, not one of the current directory; None if it is not installed."""
    return shutil.which(name, path=_entries("PATH", os.path.isabs))


def _entries(variable: str, keep: Callable[[str], bool]) -> str:
    return os.pathsep.join(filter(keep, os.environ.get(variable, os.defpath).split(os.pathsep)))
