"""Plugins for Hydra, which loads them only from the namespace package hydra_plugins, and all of them in every process.

Launchers and sweepers are therefore imported when Hydra makes one of them: a single run needs none.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource  # private: its listing of folders
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper

from gyral.config.groups import CONFIG_PATH, OF_CLASSES, find_generated_choice, generated_choices, load_choice
from gyral.config.own_modules import user_config_path
from gyral.config.roles import GENERATED


class UserConfig(SearchPathPlugin):
    """The folder conf/ of the current directory adds choices to Gyral's groups; Gyral's own files take precedence."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        user = user_config_path()
        paths = [entry.path or "" for entry in search_path.get_path() if entry.provider == "main"]
        if Path(CONFIG_PATH) in [Path(path.removeprefix("file://")) for path in paths]:
            search_path.prepend("gyral", f"{Choices.scheme()}://conf", "main")
            if user is not None:
                search_path.prepend("user", f"{OwnFiles.scheme()}://{user}", "gyral")


class OwnFiles(FileConfigSource):
    """The files of the user's folder conf/, which are checked, see `gyral.config.own_files`."""

    @staticmethod
    def scheme() -> str:
        return "own"

    def load_config(self, config_path: str) -> ConfigResult:
        from gyral.config import own_files  # now: most users have no files

        return ConfigResult(self.provider, self.full_path(), *own_files.load(config_path))

    def is_config(self, config_path: str) -> bool:
        from gyral.config import own_files

        return own_files.find(config_path) is not None


class Choices(ConfigSource):
    """The choices that are more than the content of a file, see `gyral.config.groups.generated_choices`."""

    @staticmethod
    def scheme() -> str:
        return "gyral"

    def load_config(self, config_path: str) -> ConfigResult:
        group, name = _split(config_path)
        package = "_global_" if group in GENERATED else None
        config = load_choice(group, name, self.find(config_path))
        return ConfigResult(self.provider, self.full_path(), config, {"package": package})

    def available(self) -> bool:
        return True

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self.find = cache(self.find)  # type: ignore[method-assign]  # Hydra asks several times for each choice

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.provider, self.full_path())  # a job of SLURM or Ray gets it pickled, without the cache

    def find(self, config_path: str) -> Path | None:
        """Return the file of a choice, None if there is none."""
        group, name = _split(config_path)
        return find_generated_choice(group, name) if group in (*GENERATED, *OF_CLASSES) else None

    def is_group(self, config_path: str) -> bool:
        group, name = _split(config_path)
        return group in (*GENERATED, *OF_CLASSES) and (not name or bool(self.list(config_path, None)))

    def is_config(self, config_path: str) -> bool:
        return self.find(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        group, name = _split(config_path)
        prefix = f"{name}/" if name else ""
        inner = {choice.removeprefix(prefix) for choice in generated_choices(group) if choice.startswith(prefix)}
        found = set()
        for choice in inner:
            first, slash, _ = choice.partition("/")
            if results_filter in (None, ObjectType.GROUP if slash else ObjectType.CONFIG):
                found.add(first)
        return sorted(found)


def _split(config_path: str) -> tuple[str, str]:
    """Return group and choice of the path of a configuration."""
    group, _, name = config_path.partition("/")
    return group, name


class _Deferred:
    """A plugin whose calls return what a class or function of a module returns, by default that of the same name."""

    module, name = "", ""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        return getattr(import_module(cls.module), cls.name or cls.__name__)(*arguments, **options)

    def setup(self, **_: Any) -> None:
        raise NotImplementedError


class _DeferredLauncher(_Deferred, Launcher):
    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Any:
        raise NotImplementedError


class _DeferredSweeper(_Deferred, Sweeper):
    def sweep(self, arguments: list[str]) -> Any:
        raise NotImplementedError


class Default(_DeferredLauncher):
    """launcher=default."""

    module, name = "gyral.sweeps.launchers.joblib", "on_this_machine"


class Local(_DeferredLauncher):
    """launcher=local."""

    module = "gyral.sweeps.launchers.local"


class Joblib(_DeferredLauncher):
    """launcher=joblib."""

    module = "gyral.sweeps.launchers.joblib"


class Slurm(_DeferredLauncher):
    """launcher=slurm."""

    module = "gyral.sweeps.launchers.slurm"


class Ray(_DeferredLauncher):
    """launcher=ray."""

    module = "gyral.sweeps.launchers.ray"


class Grid(_DeferredSweeper):
    """The default sweeper."""

    module = "gyral.sweeps.grid"


class Tune(_DeferredSweeper):
    """The sweeper of sweep=tune."""

    module = "gyral.sweeps.optuna"
