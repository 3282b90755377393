"""Configurations as plain values, and plain values as configurations in which no text is an interpolation.

OmegaConf evaluates `${…}` wherever it finds it in text, and a text that was evaluated once may hold another one. The
values of a run are evaluated once, when its configuration is composed. From then on they are data.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf

# The versions in C are fast. All of these read and write plain containers only.
SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Loader(SafeLoader):
    """Reads YAML as OmegaConf does: 1e-3 is a number, and a date is text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
    }


class Dumper(SafeDumper):
    """Writes YAML that `Loader` and OmegaConf read as it was: text that looks like a number gets quotes."""


for _class in (Loader, Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.[\d_]+)[eE][-+]?\d+$"), list("-+.0123456789")
    )


def plain_values(config: DictConfig) -> dict[str, Any]:
    """Return a configuration as nested dictionaries and lists, every interpolation replaced by its value."""
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def as_config(plain: dict[str, Any]) -> DictConfig:
    """Return plain values as a configuration in which no text is an interpolation. `plain_values` is the inverse."""
    return OmegaConf.create(map_texts(plain, lambda text: re.sub(r"(\\*)\$\{", r"\1\1\\${", text)))


def walk(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values of nested containers with their keys, outer ones first."""
    yield key, node
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from walk(item, f"{key}[{index}]")
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from walk(value, f"{key}.{name}" if key else str(name))


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return nested containers with every text changed, but not the keys."""
    if isinstance(value, dict):
        return {key: map_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def flatten(node: Any) -> list[tuple[str, Any]]:
    """Return every value of nested dictionaries with its dotted key."""
    found, left = [], [("", node)]
    while left:
        prefix, value = left.pop()
        if isinstance(value, dict) and value:
            start = f"{prefix}." if prefix else ""
            left += [(f"{start}{key}", inner) for key, inner in reversed(value.items())]
        else:
            found.append((prefix, value))
    return found
