"""Reading of the files in a run directory, which may be damaged or come from somebody else. Imports no torch."""

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf

from gyral.config.plain import map_texts, walk
from gyral.core.errors import UserError
from gyral.core.files import write_atomically

SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the former is fast; both make plain containers only
DEEPEST = 100  # levels of nested values
NOT_READABLE = (yaml.YAMLError, ValueError, RecursionError)


class Loader(SafeLoader):
    """Reads YAML as OmegaConf does: 1e-3 is a number, and a date is text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
    }


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.[\d_]+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_text(path: Path) -> str:
    """Return the content of a text file.

    Raises:
        UserError: the file does not exist, cannot be read, or is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not text") from None


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file as plain containers. Nothing in the file is executed or evaluated.

    Raises:
        UserError: the file cannot be read or is not YAML, or has aliases, which runs do not write.
    """
    text = _plain_yaml(path)
    try:
        return yaml.load(text, Loader=Loader)
    except NOT_READABLE as error:
        raise UserError(f"{path}: is not YAML: {_first_line(error)}") from None


def read_config(path: Path) -> dict[str, Any]:
    """Return the configuration in a file that `write_config` wrote, as plain values.

    Raises:
        UserError: as `read_yaml`; or the file is no configuration, or has an interpolation: runs save values.
    """
    config = read_yaml(path)
    if not isinstance(config, dict):
        raise UserError(f"{path}: is not a configuration")
    for key, value in walk(config):
        if "${" in key or (isinstance(value, str) and "${" in value):
            raise UserError(f"{path}: has an interpolation, {key}={value}; runs save values")
    content: dict[str, Any] = map_texts(config, lambda text: re.sub(r"\$(\\*)\\\{", r"$\1{", text))
    return content


def write_config(path: Path, config: dict[str, Any]) -> None:
    """Write a configuration of plain values; text that holds `${` gets a backslash between the two characters."""
    encoded = map_texts(config, lambda text: re.sub(r"\$(\\*)\{", r"$\1\\{", text))
    write_atomically(path, OmegaConf.to_yaml(OmegaConf.create(encoded)))


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that holds an object.

    Raises:
        UserError: the file cannot be read, or does not hold an object.
    """
    text = read_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not JSON: {_first_line(error)}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: is not a JSON object")
    return content


def _plain_yaml(path: Path) -> str:
    """Return the text of a YAML file after checking that it is not made to exhaust time or memory.

    A few lines with aliases can expand to billions of values, and the time for nested values grows with their depth.
    """
    text, depth = read_text(path), 0
    try:
        for event in yaml.parse(text, Loader=Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > DEEPEST:
                raise UserError(f"{path}: has YAML aliases or too deeply nested values, which no run writes")
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is not YAML: {_first_line(error)}") from None
    return text


def _first_line(error: BaseException) -> str:
    """Return the place and the first line of a parse error."""
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f"line {mark.line + 1}: "
    lines = (str(getattr(error, "problem", None) or error) or type(error).__name__).splitlines()
    return where + lines[0]
