"""Reading of the files in a run directory, which may be damaged or come from somebody else. Imports no torch."""

import json
import marshal
import os
import re
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf

from gyral.config.plain import Dumper, Loader, map_texts, replace, walk
from gyral.core.errors import UserError
from gyral.core.files import to_json, write_atomically
from gyral.core.inputs import as_utf8, excerpt, find_fault

DEEPEST = 100  # levels of nested values
LARGEST = 2**20  # bytes of a file that is read as a whole, except for logs
LARGEST_LOG = 2**28
SECTION = re.compile(r"^(?=[^\s#-])(?!\A)", re.MULTILINE)  # the start of a section of a YAML file, but the first
WORDS = re.compile(r"(?:- [^\W\d][\w.@/]*=[\w./,+-]*\n)+")  # YAML of a list of overrides without special characters
NOT_READABLE = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
Kind = TypeVar("Kind")


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a file.

    Raises:
        UserError: the path is not that of a regular file, the file cannot be read, or has more than `largest` bytes.
    """
    if fault := find_fault(path):  # a pipe or a device, from which reading may never end
        raise UserError(f"{path}: {fault}")
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(min(size, largest) + 1)  # no more, because Python allocates all of it
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(content) > largest:
        raise UserError(f"{path}: has more than {largest >> 20} MiB, and no run writes such a file")
    return content


def read_text(path: Path, largest: int = LARGEST) -> str:
    """Return the content of a text file.

    Raises:
        UserError: as `read_bytes`, or the file is not text in UTF-8.
    """
    try:
        return read_bytes(path, largest).decode()
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not text in UTF-8") from None


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file as plain containers. Nothing in the file is executed or evaluated.

    Raises:
        UserError: the file cannot be read or is not YAML, or has aliases, which runs do not write.
    """
    return _parse_yaml(path)[0]


def _parse_yaml(path: Path) -> tuple[Any, bool]:
    """Return the content of a YAML file, see `read_yaml`, and whether it is known to have no `$`."""
    text = read_text(path)
    if WORDS.fullmatch(text):  # overrides: no value needs YAML
        return [line[2:] for line in text.split("\n")[:-1]], True
    sections = SECTION.split(text)
    if len(sections) > 1:
        with suppress(UserError, AttributeError):  # something else than sections, such as text over several lines
            content, is_plain = {}, True
            for section in sections:
                dumped, is_plain_section = _load_section(section)
                content.update(marshal.loads(dumped).items())
                is_plain &= is_plain_section
            return content, is_plain
    return _load_yaml(path, text), False


@lru_cache(512)
def _load_section(text: str) -> tuple[bytes, bool]:
    """Return a section of a YAML file as bytes of `marshal`, and whether it has no `$`.

    Runs of a sweep share most of their sections.
    """
    content = _load_yaml("", text)
    try:
        return marshal.dumps(content), "$" not in json.dumps(content)
    except (ValueError, TypeError):
        raise UserError("has other values than plain ones") from None


def _load_yaml(path: Path | str, text: str) -> Any:
    """Return YAML as plain containers, see `read_yaml`, if it is not made to exhaust time or memory.

    A few lines with aliases can expand to billions of values, and the time for nested values grows with their depth.
    """
    depth = 0
    try:
        for event in yaml.parse(text, Loader=Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > DEEPEST:
                raise UserError(f"{path}: has YAML aliases or too deeply nested values, which no run writes")
        return yaml.load(text, Loader=Loader)
    except UserError:
        raise
    except NOT_READABLE as error:
        raise UserError(f"{path}: is not YAML: {_first_line(error)}") from None


def read_config(path: Path) -> dict[str, Any]:
    """Return the configuration in a file that `write_config` wrote, as plain values.

    Raises:
        UserError: as `read_yaml`; or the file is not a configuration, or has an interpolation: runs save values.
    """
    config, is_plain = _parse_yaml(path)
    if is_plain and isinstance(config, dict):
        return config
    try:
        text = json.dumps(config, default=str)  # one call, where a walk through a configuration takes hundreds
    except TypeError:
        text = ""
    if not isinstance(config, dict) or not text:
        raise UserError(f"{path}: is not a configuration")
    if "${" in text:
        found = (f"{key}={value}" for key, value in walk(config) if "${" in f"{key.rpartition('.')[2]}{value}")
        raise UserError(f"{path}: has an interpolation, {excerpt([*found][-1:])}; runs save values")
    content: dict[str, Any] = replace(config, r"\$(\\*)\\\{", r"$\1{")
    return content


def write_config(path: Path, config: dict[str, Any]) -> None:
    """Write a configuration of plain values; text that holds `${` gets a backslash between the two characters."""
    write_yaml(path, replace(config, r"\$(\\*)\{", r"$\1\\{"))


def write_yaml(path: Path, content: Any) -> None:
    """Write a configuration or a list, of OmegaConf or plain; names of files that are not text get escapes."""
    container = OmegaConf.to_container(content, enum_to_str=True) if OmegaConf.is_config(content) else content
    shown = repr(container)
    plain = container if shown.isascii() and "\\" not in shown else map_texts(container, _readable)
    write_atomically(path, yaml.dump(plain, Dumper=Dumper, allow_unicode=True, sort_keys=False))


def _readable(text: str) -> str:
    """Return a text that YAML can hold."""
    return text if text.isascii() else as_utf8(text).encode("utf-8", "backslashreplace").decode()


def read_json(path: Path, kind: type[Kind]) -> Kind:
    """Return the content of a JSON file as a value of a type, see `restore`.

    Raises:
        UserError: the file cannot be read, or has no such value.
    """
    return restore(str(path), kind, read_bytes(path))


def read_yaml_as(path: Path, kind: type[Kind]) -> Kind:
    """Return the content of a YAML file as a value of a type, see `restore`.

    Raises:
        UserError: the file cannot be read, or has no such value.
    """
    return restore_plain(str(path), kind, read_yaml(path))


def restore_plain(where: str, kind: type[Kind], content: Any) -> Kind:
    """Return plain containers as a value of a type, see `restore`."""
    try:
        return restore(where, kind, json.dumps(content))
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, UserError) else UserError(f"{where}: {_first_line(error)}") from None


def restore(where: str, kind: type[Kind], text: str | bytes) -> Kind:
    """Return JSON as a value of a type, all of whose fields pydantic checks strictly.

    Args:
        where: the start of the message of an error, such as the path of the file.
        kind: the type, such as a data class; its `__pydantic_config__` says whether unknown fields are errors.
        text: the JSON.

    Raises:
        UserError: the text is not JSON, is nested too deeply, or a field does not have its type.
    """
    from pydantic import ValidationError  # only commands that read files pay for this import

    try:
        checked: Kind = _adapter(kind).validate_json(text, strict=True)  # type: ignore[arg-type]
        return checked
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    except RecursionError:
        raise UserError(f"{where}: has too deeply nested values") from None
    if first["type"] == "json_invalid" and (repaired := _without_surrogates(text)) not in (None, text):
        return restore(where, kind, repaired)
    field = "".join(f": {excerpt([place])}" for place in [".".join(map(str, first["loc"]))] if place)
    reason = first["msg"].removeprefix("Value error, ").replace("Invalid JSON:", "is not JSON:")
    reason = {"unexpected_keyword_argument": "is not a field", "missing": "is missing"}.get(first["type"], reason)
    raise UserError(f"{where}{field}: {reason}")


def _without_surrogates(text: str | bytes) -> str | None:
    """Return JSON without halves of surrogate pairs, which earlier versions wrote; None if it is not JSON otherwise."""
    try:
        return to_json(json.loads(text if isinstance(text, str) else text.decode()))
    except (ValueError, RecursionError):
        return None


@cache
def _adapter(kind: Any) -> Any:
    """Return a validator of values of a type."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _first_line(error: BaseException) -> str:
    """Return the place and the first line of a parse error."""
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f"line {mark.line + 1}: "
    lines = (str(getattr(error, "problem", None) or error) or type(error).__name__).splitlines()
    return where + lines[0]
