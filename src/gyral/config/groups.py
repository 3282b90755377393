"""Groups of choices: which there are, the file that has a choice, and its options."""

import difflib
import logging
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gyral.config import tables
from gyral.config.own_modules import config_folders
from gyral.config.plain import yaml_fault
from gyral.config.roles import GENERATED
from gyral.config.signatures import constructor_defaults, small_options
from gyral.config.tables import Table, load_table
from gyral.core import CONF
from gyral.core.errors import SIMILARITY, UserError, one_line, suggest_name

log = logging.getLogger(__name__)

CONFIG_PATH = str(CONF)
SMALL = "_debug"  # the group of the tiny examples of debug=small; conf/train.yaml chooses from it
OF_CLASSES = ("model", "cell", "task", SMALL)  # the groups whose choices take options from the constructors of classes
MOST_LISTED = 200  # names in an error


def groups() -> list[str]:
    """Return the names of all groups of the command line."""
    names = {folder.name for root in config_folders() for folder in root.iterdir() if folder.is_dir()}
    return sorted(name for name in {*names, *GENERATED} - {tables.GROUP} if not name.startswith(("_", ".")))


def choices(group: str) -> list[str]:
    """Return the names that a group has on the command line; files that begin with an underscore are private."""
    names = {*generated_choices(group), *_files(group)}
    return sorted(name for name in names if not name.rpartition("/")[2].startswith("_"))


def list_choices(group: str) -> str:
    """Return the choices of a group as lines of text, one for each of its folders, without a line end."""
    folders: dict[str, list[str]] = {}
    for choice in choices(group):
        folder, slash, name = choice.rpartition("/")
        folders.setdefault(folder + slash, []).append(name)
    lines = [f"{folder}{{{','.join(names)}}}" if folder else ", ".join(names) for folder, names in folders.items()]
    return "\n".join(f"{group}: {line}" for line in lines)


def allowed_choices(group: str, name: str = "") -> str:
    """Return the hint of an error about a wrong choice: similar names, and all names or how to list them."""
    names = choices(group)
    if len(names) <= MOST_LISTED:
        return f"{suggest_name(name, names)}must be one of {', '.join(names)}"
    near = difflib.get_close_matches(name, names, cutoff=SIMILARITY)
    near = near or [each for each in names if each.endswith(f"/{name}")][:3]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{hint}must be one of {len(names)} names, which `gyral train --help {group}` lists"


def generated_choices(group: str) -> dict[str, Path]:
    """Return the files of the choices that `load_choice` makes, also of private ones.

    These are rows and tables, a model for every cell, cells, models and tasks, whose options come from their
    constructors, and the tiny examples of models and tasks.
    """
    if group == "sweep":
        return tables.files()
    if group in GENERATED:
        found = usable_tables(tables.files().values())
        return {name: table.file for table in found for name in table.choices(group)}
    if group == "model":
        cells = {name: file for name, file in _files("cell").items() if not name.startswith("_")}
        return cells | _files("model")
    if group == SMALL:
        return {f"{of}/small/{name}": file for of in ("model", "task") for name, file in generated_choices(of).items()}
    return _files(group) if group in OF_CLASSES else {}


def usable_tables(files: Iterable[Path]) -> Iterator[Table]:
    """Yield the tables in files; a line is printed about one that cannot be used."""
    for file in files:
        try:
            yield load_table(file)
        except UserError as error:
            warn_skipped(str(error))


@cache  # a command asks for the tables many times
def warn_skipped(fault: str) -> None:
    """Print a line about a table that cannot be used. Commands that do not need this table go on."""
    log.warning("%s; this table is left out", fault)


def find_generated_choice(group: str, name: str) -> Path | None:
    """Return the file of one of the `generated_choices`, None if there is none. Nothing else is listed or parsed.

    Raises:
        UserError: a table that may have this row or column cannot be used.
    """
    if group == "sweep":
        return find_file(tables.GROUP, name)
    if group == SMALL and "/small/" in name:
        return find_generated_choice(*name.split("/small/", 1))
    if group == "model" and not name.startswith("_"):
        return find_file(group, name) or find_file("cell", name)
    if group not in GENERATED:
        return find_file(group, name) if group in OF_CLASSES else None
    fault = None
    for file in tables.that_may_have([name]):
        try:
            if name in load_table(file).choices(group):
                return file
        except UserError as error:
            fault = error
    if fault is not None:
        raise fault
    return None


def find_file(group: str, name: str) -> Path | None:
    """Return the file of a choice in the folders of a group, Gyral's own first, None if there is none."""
    if os.path.isfile(file := CONF / group / f"{name}.yaml"):
        return file
    for folder in config_folders()[1:]:
        if os.path.isfile(file := folder / group / f"{name}.yaml"):
            return file
    return None


def find_config(group: str, name: str) -> Path:
    """Return the file that has a choice; the path in Gyral's own folder if there is no such file.

    Raises:
        UserError: see `find_generated_choice`.
    """
    found = find_file(group, name) or find_generated_choice(group, name)
    return found or CONF / group / f"{name}.yaml"


def load_choice(group: str, name: str, file: Path | None = None) -> DictConfig:
    """Return the configuration of a choice, with its list of defaults, from its file, which is found if it is None.

    A cell or a task has all options of its constructor, as if its file listed them. So has a cell within the file of a
    model.
    """
    if group == SMALL:
        of, _, choice = name.split("/", 2)
        return OmegaConf.create(small_options(target_of(of, choice)))
    file = file or find_config(group, name)
    if file.parent.name == tables.GROUP:
        return load_table(file).config(group, name)
    if group == "model" and file.parent.name == "cell":
        return OmegaConf.create({"defaults": ["_base", {"/cell@cell": name}]})
    config = load_file(file)
    if group != "model":
        return _with_options(config, group) if "_target_" in config else config
    for section, node in config.items():
        if isinstance(node, DictConfig) and "_target_" in node:
            config[section] = _with_options(node, group)
    return config


def target_of(group: str, name: str) -> str:
    """Return the dotted name of the class of a choice, which its file or one of its defaults names; "" without one."""
    config = load_choice(group, name)
    inner = [entry for entry in config.get("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    return config.get("_target_") or next(filter(None, (target_of(group, entry) for entry in reversed(inner))), "")


def load_file(file: Path) -> DictConfig:
    """Return the configuration in a YAML file.

    Raises:
        UserError: the file is not YAML or holds no options; the line names the file and the line in it.
    """
    try:
        config = OmegaConf.load(file)
    except yaml.YAMLError as error:
        raise UserError(f"{shown(file)}{yaml_fault(error)}") from None
    except OmegaConfBaseException as error:  # an interpolation such as ${seed without its end
        raise UserError(f"{shown(file)}: {error.full_key}: {one_line(error)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{shown(file)}: cannot be read ({error})") from None
    if not isinstance(config, DictConfig):
        raise UserError(f"{shown(file)}: must hold options, such as `seed: 2`, and no list")
    return config


def shown(file: Path) -> str:
    """Return the path of a file for a message: relative to the current directory, if it is there."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


def _with_options(node: DictConfig, group: str) -> DictConfig:
    """Return a node with all options of its constructor but those that its list of defaults has, in their order."""
    given = {*map(str, node)}
    for entry in node.get("defaults", []):
        if isinstance(entry, DictConfig):
            given.update(str(key).partition("@")[2] for key in entry)
        elif find_generated_choice(group, str(entry)):
            given.update(map(str, load_choice(group, entry)))
    options = constructor_defaults(node._target_)
    own = {str(key): value for key, value in node.items_ex(resolve=False)}
    first = {key: value for key, value in own.items() if key.startswith("_") or key == "defaults"}
    if group != "task":
        first.setdefault("_partial_", True)  # a model calls the constructor with the size of the cell's inputs
    added = {key: own.get(key, value) for key, value in options.items() if key in own or key not in given}
    return OmegaConf.create(first | added | own)


def _files(group: str) -> dict[str, Path]:
    """Return the files in the folders of a group by the names of their choices."""
    folders = [root / group for root in reversed(config_folders())]  # so that Gyral's own files come last and stay
    files = {path.relative_to(folder).with_suffix(""): path for folder in folders for path in folder.rglob("*.yaml")}
    return {name.as_posix(): path for name, path in files.items()}
