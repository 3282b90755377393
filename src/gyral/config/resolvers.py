"""OmegaConf resolvers of the configuration; importing this module registers them."""

import hashlib
import os
from pathlib import Path

from omegaconf import OmegaConf

from gyral.config.roles import NOT_IN_DIRECTORIES
from gyral.core.errors import OptionError

RUN_CONFIG = "config.yaml"  # the saved configuration in a run directory
LONGEST_NAME = 180  # file systems allow 255 bytes


def data_dir() -> str:
    """Return the data folder: the environment variable DATA_DIR, by default data/ in the current directory."""
    return os.environ.get("DATA_DIR", "data")


def run_directory(resume: str | None, default: str) -> str:
    """Return hydra.run.dir: the run directory to resume, or the default.

    Raises:
        OptionError: `resume` is not a run directory.
    """
    if resume is None:
        return default
    if not (Path(resume) / RUN_CONFIG).is_file():
        raise OptionError("resume", resume, f"must be a run directory, one that holds {RUN_CONFIG}")
    return str(resume)


def directory_name(overrides: str) -> str:
    """Return hydra.sweep.subdir: a file name that the overrides of a sweep's job determine."""
    name = overrides.replace("/", "-") or "default"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME // 2]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def base_name(choice: str) -> str:
    """Return the last part of a choice in a folder: gru of rum_paper/table1/gru."""
    return choice.rpartition("/")[2]


def not_in_directories(*shown: str) -> list[str]:
    """Return the keys of options that do not name the directory of a job, besides those that its folders show."""
    return [*shown, *NOT_IN_DIRECTORIES]


for resolver in (data_dir, run_directory, directory_name, base_name, not_in_directories):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
