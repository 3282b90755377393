"""Configurations as plain values, and plain values as configurations in which no text is an interpolation.

OmegaConf evaluates `${…}` wherever it finds it in text, and a text that was evaluated once may hold another one. The
values of a run are evaluated once, when its configuration is composed. From then on they are data.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf

from gyral.core.errors import one_line

# The versions in C are fast. All of these read and write plain containers only.
SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
WITH_TEXTS = (str, dict, list, tuple)  # the types of texts and of what may hold some


class Loader(SafeLoader):
    """Reads YAML as OmegaConf does: 1e-3 is a number, and a date is text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuse a key that is there twice, of which YAML would use the last."""
        seen = set()
        for key, _ in node.value:
            if key.tag.endswith(":str") and key.value in seen:
                context = ("while constructing a mapping", node.start_mark)
                raise yaml.constructor.ConstructorError(*context, f"found duplicate key {key.value}", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


class Dumper(SafeDumper):
    """Writes YAML that `Loader` and OmegaConf read as it was: text that looks like a number gets quotes."""


for _class in (Loader, Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.[\d_]+)[eE][-+]?\d+$"), list("-+.0123456789")
    )


def yaml_fault(error: yaml.YAMLError) -> str:
    """Return an error of YAML as the end of a message that begins with the file: ":3: found duplicate key lr"."""
    mark, begin = (getattr(error, name, None) for name in ("problem_mark", "context_mark"))
    if mark is None:
        return f": is not YAML: {one_line(error)}"
    context = f" ({error.context} from line {begin.line + 1})" if begin is not None and error.context else ""
    advice = "; indent with spaces" if "\\t" in (error.problem or "") else ""
    return f":{mark.line + 1}: {error.problem or error.context}{context}{advice}"


def plain_values(config: DictConfig) -> dict[str, Any]:
    """Return a configuration as nested dictionaries and lists, every interpolation replaced by its value."""
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def as_config(plain: dict[str, Any]) -> DictConfig:
    """Return plain values as a configuration in which no text is an interpolation. `plain_values` is the inverse."""
    return OmegaConf.create(replace(plain, r"(\\*)\$\{", r"\1\1\\${"))


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
    """Return a text, or a container with all texts in it, changed; keys stay as they are."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return value | {key: map_texts(inner, change) for key, inner in value.items() if isinstance(inner, WITH_TEXTS)}
    return [map_texts(inner, change) if isinstance(inner, WITH_TEXTS) else inner for inner in value]


def replace(value: Any, pattern: str, replacement: str) -> Any:
    """Return a container in which `re.sub` has changed all texts. The pattern must match their representations, too."""
    if re.search(pattern, repr(value)) is None:  # most containers have no match, which one call finds
        return value
    return map_texts(value, partial(re.sub, pattern, replacement))


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
