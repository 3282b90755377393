"""Configuration folders and the choices of their groups."""

import logging
import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gyral.config import own_modules, tables
from gyral.config.plain import yaml_fault
from gyral.config.roles import SECTIONS
from gyral.config.signatures import constructor_defaults, small_options
from gyral.config.tables import Table
from gyral.core import CONF
from gyral.core.errors import UserError, one_line

log = logging.getLogger(__name__)

CONFIG_PATH = str(CONF)
SMALL = "_debug"  # the group of the tiny examples of debug=small; conf/train.yaml chooses from it
CHOSEN = (*SECTIONS, "launcher", *tables.GENERATED, "debug")  # all groups of conf/train.yaml


def config_folders() -> list[Path]:
    """Return the folders in which groups are looked up: Gyral's own, then the user's.

    That is the folder conf/ of the current directory, unless it is Gyral's or not the user's.
    """
    folder = Path.cwd() / "conf"
    is_users = folder.is_dir() and folder.resolve() != CONF.resolve() and own_modules.is_own(folder.parent)
    return [CONF, folder] if is_users else [CONF]


def user_config_path() -> Path | None:
    """Return the user's folder of `config_folders`, None if there is none."""
    return next(iter(config_folders()[1:]), None)


def add_user_modules() -> None:
    """Make modules in the current directory importable, after all others, if it is the user's and has conf/.

    So is a checkout of Gyral, where `python -m src.train` runs.
    """
    here = Path.cwd()
    is_checkout = here / "conf" == Path(CONFIG_PATH).resolve()
    if (is_checkout or user_config_path() is not None) and str(here) not in sys.path:
        sys.path.append(str(here))


def generated_choices(group: str) -> dict[str, Path]:
    """Return the files of the choices that `load_choice` makes, also of private ones.

    These are rows and tables, a model for every cell, cells, models and tasks, whose options come from their
    constructors, and the tiny examples of models and tasks.
    """
    if group == "sweep":
        return tables.files(config_folders())
    if group in ("experiment", tables.COLUMN):
        names = groups()  # once: it lists folders
        found: dict[str, Path] = {}
        for file in tables.files(config_folders()).values():
            try:
                table = tables.read(file, names)
                found |= dict.fromkeys(table.columns if group == tables.COLUMN else table.experiments, file)
            except UserError as error:
                warn_skipped(str(error))
        return found
    if group == "model":
        cells = {name: file for name, file in _files("cell").items() if not name.startswith("_")}
        return cells | _files("model")
    if group == SMALL:
        return {f"{of}/small/{name}": file for of in ("model", "task") for name, file in generated_choices(of).items()}
    return _files(group) if group in ("cell", "task") else {}


def find_generated_choice(group: str, name: str) -> Path | None:
    """Return the file of one of the `generated_choices`, None if there is none. Nothing else is listed or parsed."""
    if group in ("experiment", tables.COLUMN):
        return find_rows(group, [name]).get(name)
    if group == SMALL and "/small/" in name:
        return find_generated_choice(*name.split("/small/", 1))
    if group == "sweep":
        return find_file(tables.GROUP, name)
    if group == "model" and not name.startswith("_"):
        return find_file(group, name) or find_file("cell", name)
    return find_file(group, name) if group in ("model", "cell", "task") else None


def find_rows(group: str, names: Iterable[str]) -> dict[str, Path]:
    """Return the files of the choices of `experiment` or `column` that exist, by name. No other table is parsed."""
    found: dict[str, Path] = {}
    for file, own in tables.that_may_have(names, config_folders()).items():
        try:
            table = load_table(file)
            choices_of_table = {*(table.columns if group == tables.COLUMN else table.experiments)}
            found |= dict.fromkeys(choices_of_table.intersection(own), file)
        except UserError as error:
            warn_skipped(str(error))
    return found


def has_folder(group: str, name: str) -> bool:
    """Return whether the `generated_choices` have a folder of this name, "" for the group itself."""
    if not name:
        return group in (*tables.GENERATED, "model", "cell", "task")
    if group not in ("experiment", tables.COLUMN):
        return any(choice.startswith(f"{name}/") for choice in generated_choices(group))
    experiments = [tables.experiment_of(file) for file in tables.files(config_folders()).values()]
    return any(f"{experiment}/".startswith(f"{name}/") for experiment in experiments)


@cache  # a command asks for the tables many times
def warn_skipped(fault: str) -> None:
    """Print a line about a table that cannot be used. Commands that do not need this table go on."""
    log.warning("%s; this table is left out", fault)


def load_table(file: Path) -> Table:
    """Return the table in a file of conf/table."""
    return tables.read(file, groups())


def find_config(group: str, name: str) -> Path:
    """Return the file that has a choice; the path in Gyral's own folder if there is no such file.

    Raises:
        UserError: the choice is of a table that cannot be used.
    """
    found = find_file(group, name) or find_generated_choice(group, name)
    if found is None and (fault := find_table_error(group, name)):
        raise fault
    return found or Path(CONFIG_PATH, group, f"{name}.yaml")


def find_file(group: str, name: str) -> Path | None:
    """Return the file of a choice in the folders of a group, Gyral's own first, None if there is none."""
    for folder in config_folders():
        if os.path.isfile(file := folder / group / f"{name}.yaml"):
            return file
    return None


def find_table_error(group: str, name: str) -> UserError | None:
    """Return the error of the table that has a row or column of this name but cannot be used, None without one."""
    for file in tables.that_may_have([name], config_folders()) if group in ("experiment", tables.COLUMN) else ():
        try:
            _ = load_table(file).experiments
        except UserError as error:
            return error
    return None


def load_choice(group: str, name: str) -> DictConfig:
    """Return the configuration of a choice, with its list of defaults.

    A cell or a task has all options of its constructor, as if its file listed them. So has a cell within the file of a
    model.
    """
    if group == SMALL:
        of, _, choice = name.split("/", 2)
        return OmegaConf.create(small_options(target_of(of, choice)))
    file = find_config(group, name)
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


def groups() -> list[str]:
    """Return the names of all groups of the command line."""
    names = {folder.name for root in config_folders() for folder in root.iterdir() if folder.is_dir()}
    return sorted(name for name in {*names, *tables.GENERATED} - {tables.GROUP} if not name.startswith(("_", ".")))


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
