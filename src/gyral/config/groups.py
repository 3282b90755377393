"""Configuration folders and the choices of their groups."""

import os
import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from gyral.config import tables
from gyral.config.tables import Table

PACKAGE = Path(__file__).parents[1]
CHECKOUT = PACKAGE.parents[1]
CONFIG_PATH = str(PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else CHECKOUT / "conf")


def user_config_path() -> Path | None:
    """Return the folder conf/ of the current directory, or None if it does not exist or is Gyral's own."""
    folder = Path.cwd() / "conf"
    return folder if folder.is_dir() and folder.resolve() != Path(CONFIG_PATH).resolve() else None


def add_user_modules() -> None:
    """Make modules in the current directory importable, here and in child processes, if it has a folder conf/."""
    if user_config_path() is None:
        return
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*paths, folder]))


def config_folders() -> list[Path]:
    """Return the folders in which groups are looked up: Gyral's own, then the user's."""
    user = user_config_path()
    return [Path(CONFIG_PATH)] if user is None else [Path(CONFIG_PATH), user]


def served(group: str) -> dict[str, Path]:
    """Return the file of the table that each choice of a group comes from, if it has no file of its own."""
    if group not in tables.SERVED:
        return {}
    files = tables.files(config_folders())
    if group == "sweep":
        return files
    return {experiment: file for file in files.values() for experiment in load_table(file).experiments}


def load_table(file: Path) -> Table:
    """Return the table in a file of conf/table."""
    return tables.read(file, groups())


def find_config(group: str, name: str) -> Path:
    """Return the file that has a choice; the path in Gyral's own folder if there is no such file."""
    candidates = [folder / group / f"{name}.yaml" for folder in config_folders()]
    return next((file for file in candidates if file.is_file()), None) or served(group).get(name, candidates[0])


def load_choice(group: str, name: str) -> DictConfig:
    """Return the configuration of a choice, with its list of defaults."""
    file = find_config(group, name)
    config = load_table(file).config(group, name) if file.parent.name == tables.GROUP else OmegaConf.load(file)
    assert isinstance(config, DictConfig)
    return config


def config_files(group: str) -> dict[str, Path]:
    """Return the file of each choice of a group, as `find_config` does for one."""
    folders = [root / group for root in reversed(config_folders())]  # so that Gyral's own files come last and stay
    files = {path.relative_to(folder).with_suffix(""): path for folder in folders for path in folder.rglob("*.yaml")}
    found = served(group) | {name.as_posix(): path for name, path in files.items()}
    return {name: path for name, path in found.items() if not name.rpartition("/")[2].startswith("_")}


def groups() -> list[str]:
    """Return the names of all groups of the command line."""
    names = {folder.name for root in config_folders() for folder in root.iterdir() if folder.is_dir()}
    return sorted(name for name in {*names, *tables.SERVED} - {tables.GROUP} if not name.startswith(("_", ".")))


def choices(group: str) -> list[str]:
    """Return the names that a group has on the command line; files that begin with an underscore are private."""
    return sorted(config_files(group))


def list_choices(group: str) -> str:
    """Return the choices of a group as lines of text, one for each of its folders."""
    folders: dict[str, list[str]] = {}
    for choice in choices(group):
        folder, slash, name = choice.rpartition("/")
        folders.setdefault(folder + slash, []).append(name)
    lines = [f"{folder}{{{','.join(names)}}}" if folder else ", ".join(names) for folder, names in folders.items()]
    return "\n".join(f"{group}: {line}" for line in lines)
