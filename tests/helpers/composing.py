"""Hydra's composition, of the same files once: a test process composes hundreds of times, mostly alike."""

import copy
import functools
import itertools
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import omegaconf
import pytest
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from gyral.config.groups import CONFIG_PATH

OWN = {"hydra.conf", "conf", CONFIG_PATH, ""}  # the paths of Hydra's and Gyral's sources

load = OmegaConf.load
parse_rule = OverridesParser.parse_rule
create_defaults_list = config_loader_impl.create_defaults_list
create_interpolation_map = defaults_list._create_interpolation_map
load_config = ConfigRepository.load_config
compose_files = ConfigLoaderImpl._compose_config_from_defaults_list
create = OmegaConf.create
deepcopy = DictConfig.__deepcopy__
parse_interpolation = functools.cache(omegaconf.base.parse)
PARSED: dict[str, bytes] = {}
WORDS: dict[tuple[str, str], Any] = {}
LISTS: dict[Any, DefaultsList] = {}
CHOICES: dict[tuple[str, ...], bytes] = {}
NOTHING = pickle.dumps(None)
BEGINNINGS: dict[str, bytes] = {}
COMPOSED: dict[int, bytes] = {}  # by the identity of the list


@contextmanager
def each_once() -> Iterator[None]:
    """Have Hydra parse each content of a file and each override once, and compose each selection of files once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", load_once)
        patch.setattr(OverridesParser, "parse_rule", parse_once)
        patch.setattr(config_loader_impl, "create_defaults_list", list_once)
        patch.setattr(defaults_list, "_create_interpolation_map", map_if_needed)
        patch.setattr(ConfigRepository, "load_config", load_choice_once)
        patch.setattr(CachingConfigRepository, "__init__", share_sources)
        patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", compose_once)
        patch.setattr(omegaconf.base, "parse", parse_interpolation)
        patch.setattr(DictConfig, "__deepcopy__", copy_by_pickle)
        yield


def load_once(file: Any) -> Any:
    """Parse a YAML file as `OmegaConf.load` does, each content once: a run reads 30 files, all as the last run did."""
    if not hasattr(file, "read"):
        return load(file)
    text = file.read()
    if text not in PARSED:
        file.seek(0)
        PARSED[text] = pickle.dumps(load(file))  # a tenth of the time of making the nodes again
    return pickle.loads(PARSED[text])


def parse_once(parser: OverridesParser, value: str, rule: str) -> Any:
    """Parse a text by a rule of Hydra's grammar, each once."""
    if (value, rule) not in WORDS:
        WORDS[value, rule] = parse_rule(parser, value, rule)
    return copy.copy(WORDS[value, rule])  # Hydra notes in an override who has parsed it


def list_once(repo: Any, config_name: str | None, overrides_list: list[Any], **options: bool) -> DefaultsList:
    """Return the list of the files of a composition, which depends on the choices of groups and on files alone."""
    given = Overrides(repo=repo, overrides_list=overrides_list)
    chosen = (given.override_choices, given.append_group_defaults, given.deletions)
    others = [Path(source.path) for source in repo.get_sources() if source.path not in OWN]
    files = [path for folder in others for path in (*folder.rglob("*.yaml"), *folder.parent.glob("*.py"))]
    texts = [(path, path.read_bytes()) for path in sorted(files)]  # modules: their signatures are options
    key = (config_name, repr(chosen), *others, *texts, *options.values())
    if key not in LISTS:
        LISTS[key] = create_defaults_list(repo, config_name, overrides_list, **options)
    return replace(LISTS[key], config_overrides=given.config_overrides)


def map_if_needed(overrides: Overrides, entries: list[Any], self_added: bool) -> DictConfig | None:
    """Return the choices that entries of a list of defaults may refer to, None if no entry does."""
    if any(entry.is_interpolation() for entry in entries):
        return create_interpolation_map(overrides, entries, self_added)
    return None


def share_sources(caching: Any, delegate: Any) -> None:
    """Begin a repository with a cache: it makes sources of its own if it needs others, and sources have no state."""
    caching.delegate, caching.cache = copy.copy(delegate), {}


def load_choice_once(repo: ConfigRepository, config_path: str) -> ConfigResult | None:
    """Load a choice, each once, unless it may be one of the user's."""
    key, is_known = known_choice(repo, config_path)
    if not is_known:
        if not is_own(repo):
            return load_config(repo, config_path)
        CHOICES[key] = pickle.dumps(load_config(repo, config_path))
    loaded: ConfigResult | None = pickle.loads(CHOICES[key])
    return loaded


def known_choice(repo: Any, config_path: str) -> tuple[tuple[str, ...], bool]:
    """Return the key of a choice in `CHOICES`, and whether that is the choice of this repository.

    With a folder of the user's, it is if files alone make the choices of the group: Gyral's and Hydra's come first.
    """
    key = (config_path, *(source.path for source in repo.get_sources() if source.path in OWN))
    is_file = config_path.partition("/")[0] not in ("experiment", "column", "sweep", "model", "cell", "task")
    return key, key in CHOICES and (is_own(repo) or (is_file and CHOICES[key] != NOTHING))


def is_own(repo: Any) -> bool:
    """Return whether all sources of a repository are Hydra's and Gyral's."""
    return OWN.issuperset(source.path for source in repo.get_sources())


def compose_once(loader: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
    """Return the composed files of a list, which is one of `LISTS` or made for this call."""
    if not any(defaults is known.defaults for known in LISTS.values()):
        return compose_files(loader, defaults, repo)
    if id(defaults) not in COMPOSED:
        COMPOSED[id(defaults)] = pickle.dumps(compose_after_hydras(loader, defaults, repo))
    composed: DictConfig = pickle.loads(COMPOSED[id(defaults)])
    return composed


def compose_after_hydras(loader: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
    """Compose files of which the first, Hydra's own, are the same in most lists; these are composed once."""

    def is_hydras(default: Any) -> bool:
        path: str = default.config_path
        return path.startswith("hydra/") and known_choice(repo, path)[1]

    hydras = list(itertools.takewhile(is_hydras, defaults))
    key = repr(hydras)
    if key not in BEGINNINGS:
        BEGINNINGS[key] = pickle.dumps(compose_files(loader, hydras, repo))
    beginnings = [pickle.loads(BEGINNINGS[key])]
    with pytest.MonkeyPatch.context() as patch:  # the composition begins with `OmegaConf.create()`
        patch.setattr(
            OmegaConf, "create", lambda *given, **options: beginnings.pop() if beginnings else create(*given, **options)
        )
        return compose_files(loader, defaults[len(hydras) :], repo)


def copy_by_pickle(node: DictConfig, memo: dict[int, Any]) -> DictConfig:
    """Return a copy of a node with the same parent, as `copy.deepcopy` does in three times the time."""
    parent = node.__dict__["_parent"]
    node.__dict__["_parent"] = None
    try:
        copied: DictConfig = pickle.loads(pickle.dumps(node))
    except (pickle.PicklingError, AttributeError, TypeError):  # it holds an object that cannot be pickled
        copied = deepcopy(node, memo)
    finally:
        node.__dict__["_parent"] = parent
    copied.__dict__["_parent"] = parent
    return copied
