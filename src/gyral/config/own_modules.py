"""Folders of configurations: Gyral's own, and the user's with the modules beside it. Imports no torch.

The modules and the folder conf/ of the current directory may execute anything. So they count only if this directory is
neither a run nor a sweep, nor what the command reads. Modules that the option `trust` names count in any directory.
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
from gyral.core import CONF

log = logging.getLogger(__name__)

NEVER_TRUSTED = {*sys.stdlib_module_names, "gyral", "hydra_plugins"}
READ = ("run", "resume", "sweep", "beside", "weights", "checkpoint")  # options that name what a command reads
# files of runs and sweeps that no other program is likely to write
MARKERS = ("overrides.yaml", "provenance.json", "measures.json", "DONE", "FAILED", "multirun.yaml", ".search")

_command: list[str] = []  # the words of the command of this process


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


def set_command(words: Sequence[str]) -> None:
    """Set the words of the command of this process, and make the modules that it trusts importable."""
    _command[:] = words
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, TrustedModules)]
    if names := frozenset(_trusted(words)):
        sys.meta_path.append(TrustedModules(os.getcwd(), names))


def words() -> tuple[str, ...]:
    """Return the words of the command of this process, none in a process that Gyral has not started."""
    return tuple(_command)


def config_folders() -> list[Path]:
    """Return the folders in which groups are looked up: Gyral's own, then the user's.

    That is the folder conf/ of the current directory, unless it is Gyral's or not the user's.
    """
    folder = Path.cwd() / "conf"
    is_users = folder.is_dir() and folder.resolve() != CONF.resolve() and _is_own(folder.parent, tuple(_command))
    return [CONF, folder] if is_users else [CONF]


def user_config_path() -> Path | None:
    """Return the user's folder of `config_folders`, None if there is none."""
    return next(iter(config_folders()[1:]), None)


def add_user_modules() -> None:
    """Make modules in the current directory importable, after all others, if it is the user's and has conf/.

    So is a checkout of Gyral, where `python -m src.train` runs.
    """
    here = Path.cwd()
    if str(here) not in sys.path and (here / "conf" == CONF.resolve() or user_config_path() is not None):
        sys.path.append(str(here))


@cache  # a command asks for it many times, and says it once
def _is_own(directory: Path, words: tuple[str, ...]) -> bool:
    """Return whether the current directory, which has a folder conf/, counts as the user's own."""
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
    """Return the modules that the option `trust` among words names; an invalid name is refused later."""
    values = [word.lstrip("+").removeprefix("trust=") for word in words if word.lstrip("+").startswith("trust=")]
    names = [name.strip("[]'\" ").partition(".")[0] for value in values for name in value.split(",")]
    return [name for name in names if name.isidentifier() and name not in NEVER_TRUSTED]
