"""Whether modules and the folder conf/ of the current directory are the user's own. Imports no torch.

They may execute anything. So they count only if the current directory is neither a run nor a sweep, nor what the
command reads. Modules that the option `trust` names count in any directory.
"""

import logging
import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from gyral.config.overrides import split_values

log = logging.getLogger(__name__)

NEVER_TRUSTED = {*sys.stdlib_module_names, "gyral", "hydra_plugins"}
READ = ("run", "resume", "sweep", "beside", "weights", "checkpoint")  # options that name what a command reads
# files of runs and sweeps that no other program is likely to write
MARKERS = ("overrides.yaml", "provenance.json", "measures.json", "DONE", "FAILED", "multirun.yaml", ".search")


class TrustedModules:
    """A finder of the modules of a directory that the user trusts by name, after all installed ones.

    Args:
        directory: the directory.
        names: the names of the modules or packages.
    """

    def __init__(self, directory: str, names: frozenset[str]) -> None:
        self._path, self._names = [directory], names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where a module is, None for one whose name is not trusted."""
        return PathFinder.find_spec(name, self._path, target) if name in self._names else None


class _Command:
    """The command of this process: its words, none in a process that Gyral has not started."""

    words: tuple[str, ...] = ()


def set_command(words: Sequence[str]) -> None:
    """Set the words of the command of this process, and make the modules that it trusts importable."""
    _Command.words = tuple(words)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, TrustedModules)]
    if names := frozenset(_trusted(words)):
        sys.meta_path.append(TrustedModules(os.getcwd(), names))


def words() -> tuple[str, ...]:
    """Return the words of the command of this process."""
    return _Command.words


def is_own(directory: Path) -> bool:
    """Return whether the current directory, which has a folder conf/, counts as the user's own."""
    return _is_own(directory, _Command.words)


@cache  # a command asks for it many times, and says it once
def _is_own(directory: Path, words: tuple[str, ...]) -> bool:
    reason = next((f"{word} reads it" for word in words if _reads(word, directory)), None)
    if reason is None:
        marker = next((name for name in MARKERS if os.path.lexists(directory / name)), None)
        reason = marker and f"it has {marker}, as runs or sweeps have"
    if reason is not None:
        log.warning("conf/ and the modules of the current directory are not used: %s", reason)
    return reason is None


def _reads(word: str, directory: Path) -> bool:
    """Return whether a word of a command names a directory, or what contains it, as something to read."""
    key, _, value = word.lstrip("+").partition("=")
    if key not in READ and not key.startswith("task."):
        return False
    value = value.strip()
    values = split_values(value[1:-1]) if value.startswith("[") else [value]
    paths = [os.path.realpath(os.path.expanduser(each.strip("'\""))) for each in values if each and "\0" not in each]
    here = directory.resolve()
    return any(here.is_relative_to(path) if key in READ else here == Path(path) for path in paths)


def _trusted(words: Sequence[str]) -> list[str]:
    """Return the modules that the option `trust` among words names; what is not a name is refused later."""
    values = [word.lstrip("+").removeprefix("trust=") for word in words if word.lstrip("+").startswith("trust=")]
    names = [name.strip("[]'\" ").partition(".")[0] for value in values for name in value.split(",")]
    return [name for name in names if name.isidentifier() and name not in NEVER_TRUSTED]
