"""Hydra's composition, of the same files once: a test process composes hundreds of times, mostly alike."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import DefaultsList, Overrides
from omegaconf import DictConfig, OmegaConf

from gyral.config.groups import CONFIG_PATH, user_config_path

OWN = {"hydra.conf", "conf", CONFIG_PATH, ""}  # the paths of Hydra's and Gyral's sources

load = OmegaConf.load
create_defaults_list = config_loader_impl.create_defaults_list
compose_files = ConfigLoaderImpl._compose_config_from_defaults_list
PARSED: dict[str, Any] = {}
LISTS: dict[Any, DefaultsList] = {}
COMPOSED: dict[int, bytes] = {}  # by the identity of the list


@contextmanager
def each_once() -> Iterator[None]:
    """Have Hydra parse each content of a file once, and compose each selection of Gyral's own files once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", load_once)
        patch.setattr(config_loader_impl, "create_defaults_list", list_once)
        patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", compose_once)
        yield


def load_once(file: Any) -> Any:
    """Parse a YAML file as `OmegaConf.load` does, each content once: a run reads 30 files, all as the last run did."""
    if not hasattr(file, "read"):
        return load(file)
    text = file.read()
    if text not in PARSED:
        file.seek(0)
        PARSED[text] = OmegaConf.to_container(load(file))
    return OmegaConf.create(PARSED[text])


def list_once(repo: Any, config_name: str | None, overrides_list: list[Any], **options: bool) -> DefaultsList:
    """Return the list of the files of a composition, which depends on the choices of groups alone."""
    if user_config_path() is not None or any(source.path not in OWN for source in repo.get_sources()):
        return create_defaults_list(repo, config_name, overrides_list, **options)
    given = Overrides(repo=repo, overrides_list=overrides_list)
    chosen = (given.override_choices, given.append_group_defaults, given.deletions)
    key = (config_name, repr(chosen), *options.values())
    if key not in LISTS:
        LISTS[key] = create_defaults_list(repo, config_name, overrides_list, **options)
    return replace(LISTS[key], config_overrides=given.config_overrides)


def compose_once(loader: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
    """Return the composed files of a list, which is one of `LISTS` or made for this call."""
    if not any(defaults is known.defaults for known in LISTS.values()):
        return compose_files(loader, defaults, repo)
    if id(defaults) not in COMPOSED:
        COMPOSED[id(defaults)] = pickle.dumps(compose_files(loader, defaults, repo))
    composed: DictConfig = pickle.loads(COMPOSED[id(defaults)])
    return composed
