"""The data of a run: absolute paths in its configuration, and digests in its provenance. Imports no torch.

An option of the section `task` names data if its type in the signature of its class has a `Path`. The location of a
corpus that is downloaded, `data_dir`, is not one of them: it may differ from machine to machine. All configurations
here are plain values.
"""

import glob
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import Parameter
from pathlib import Path
from typing import Any, get_args

import yaml  # type: ignore[import-untyped]
from hydra.utils import get_object

from gyral.config.plain import Loader
from gyral.config.roles import DATA_DIR
from gyral.core.errors import OptionError
from gyral.core.inputs import find_fault, path_of
from gyral.core.signatures import parameters_of

SECTION, WEIGHTS = "task", "weights"
SLICE = re.compile(r"(.*?)(\[\d*:\d*\])?", re.DOTALL)  # train.tsv[:900] names the first 900 examples of a file
SIGNS = frozenset("~*?[")  # of paths that are patterns, or have a home directory or a slice
CHECKPOINTS = ("checkpoints/best.ckpt", "checkpoints/last.ckpt")  # of which a run takes its weights


def files_of(value: Any) -> list[tuple[str, Path]]:
    """Return the files that the value of an option names, each with its name in the digest.

    Args:
        value: a path of a file or of a folder, a pattern of paths, or a list of them; each may end with a slice.

    Returns:
        the files; of a folder, all files in it. Empty for any other value.
    """
    if isinstance(value, list | tuple):
        return [file for each in value for file in files_of(each)]
    matched = SLICE.fullmatch(str(value))
    assert matched is not None, "every text matches"
    if not matched[1]:
        return []
    path = path_of(matched[1])
    with suppress(OSError, ValueError):  # a name that no file can have
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.is_file())
            return [(each.relative_to(path).as_posix(), each) for each in inside]
        paths = [path] if path.exists() else [Path(name) for name in sorted(glob.glob(str(path)))]
        return [("", each) for each in paths if find_fault(each) is None]
    return []


def absolute(value: Any) -> Any:
    """Return the value of an option that names files with absolute paths; a value that names none is returned as is."""
    if isinstance(value, list | tuple):
        return [absolute(each) for each in value]
    return os.path.abspath(os.path.expanduser(str(value))) if files_of(value) else value


def data_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the options of a configuration that name existing data, by key."""
    found = dict(_named(values[SECTION], SECTION))
    return found if values.get(WEIGHTS) is None else {**found, WEIGHTS: values[WEIGHTS]}


def _named(section: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    parameters: Mapping[str, Parameter] | None = None
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _named(value, f"{key}.{name}")
        # most texts name no file, and then no class is imported
        elif isinstance(value, list) or (
            isinstance(value, str) and (os.path.lexists(value) or not SIGNS.isdisjoint(value))
        ):
            if parameters is None:
                parameters = parameters_of(get_object(section["_target_"])) or {} if "_target_" in section else {}
            if is_data(name, parameters.get(name)) and files_of(value):
                yield f"{key}.{name}", value


def is_data(name: str, parameter: Parameter | None) -> bool:
    """Return whether an option, given by its name and its parameter in a signature, names data."""
    return parameter is not None and name != DATA_DIR and _has_path(parameter.annotation)


def _has_path(hint: Any) -> bool:
    """Return whether a type is `Path` or contains it."""
    return hint is Path or any(map(_has_path, get_args(hint)))


def owner_of(values: Mapping[str, Any], key: str) -> tuple[dict[str, Any] | None, str]:
    """Return the section that has an option, None if there is none, and the name of the option in it."""
    *sections, name = key.split(".")
    owner: Any = values
    for section in sections:
        owner = owner.get(section) if isinstance(owner, dict) else None
    return (owner, name) if isinstance(owner, dict) and name in owner else (None, name)


def make_paths_absolute(values: dict[str, Any]) -> dict[str, Any]:
    """Make the paths of the options of a configuration that name data absolute; return the configuration."""
    for key, value in data_options(values).items():
        owner, name = owner_of(values, key)
        assert owner is not None, "it was found there"
        owner[name] = absolute(value)
    return values


def with_saved_paths(saved: Any, wanted: Any) -> Any:
    """Return a wanted configuration in which a path is absolute where it is the same in a saved one, and absolute."""
    if isinstance(wanted, dict) and isinstance(saved, dict):
        return {key: with_saved_paths(saved.get(key), value) for key, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(saved, list) and len(wanted) == len(saved):
        return [with_saved_paths(*pair) for pair in zip(saved, wanted, strict=True)]
    is_path = isinstance(wanted, str) and isinstance(saved, str) and Path(saved).is_absolute()
    return saved if is_path and wanted != saved and absolute(wanted) == saved else wanted


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of the data of a configuration by the keys of the options that name them."""
    found = {key: content_of(key, value) for key, value in data_options(values).items()}
    if not found:
        return {}
    from gyral.core.digests import digest_of  # now: most runs have no files

    return {key: digest_of(content) for key, content in found.items() if content}


def has_digest(content: list[tuple[str, Path]], digest: str) -> bool:
    """Return whether there are files, and their digest is this one."""
    if not content:
        return False
    from gyral.core.digests import digest_of  # now: most runs have no files

    return digest_of(content) == digest


def content_of(key: str, value: Any) -> list[tuple[str, Path]]:
    """Return the files that an option names; of another run, the checkpoint with its weights."""
    if key != WEIGHTS:
        return files_of(value)
    return next((found for name in CHECKPOINTS if (found := files_of(Path(str(value)) / name))), [])


def relocate(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Change the places of the data in the configuration of a saved run.

    Args:
        values: the configuration of the run.
        given: the places as text of the command line, by the keys of the options.

    Raises:
        OptionError: an option that is not a data file of the run.
    """
    for key, text in given.items():
        owner, name = owner_of(values, key)
        target = None if owner is None or not owner[name] else owner.get("_target_")
        parameters = {} if target is None else parameters_of(get_object(target)) or {}
        if owner is None or not is_data(name, parameters.get(name)):
            raise OptionError(key, text, "is not a data file of the run, whose configuration is saved")
        value = yaml.load(text, Loader=Loader) if text.startswith("[") else text
        owner[name] = absolute(value)
