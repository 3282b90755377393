"""Plugins for Hydra, which loads them only from the namespace package hydra_plugins."""

from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from gyral.config.groups import CONFIG_PATH, user_config_path
from gyral.sweeps import grid, optuna
from gyral.sweeps.launchers import joblib, local, ray, slurm


class UserConfig(SearchPathPlugin):
    """The folder conf/ of the current directory adds choices to Gyral's groups; Gyral's own files take precedence."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        user = user_config_path()
        paths = [entry.path or "" for entry in search_path.get_path() if entry.provider == "main"]
        if user is not None and Path(CONFIG_PATH) in [Path(path.removeprefix("file://")) for path in paths]:
            search_path.append("user", f"file://{user}")


class Local(local.Local):
    """launcher=local."""


class Joblib(joblib.Joblib):
    """launcher=joblib."""


class Slurm(slurm.Slurm):
    """launcher=slurm."""


class Ray(ray.Ray):
    """launcher=ray."""


class Grid(grid.Grid):
    """The default sweeper."""


class Tune(optuna.Tune):
    """The sweeper of sweep=tune."""
