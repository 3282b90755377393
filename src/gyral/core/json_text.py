"""Writing of JSON that every parser reads."""

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON of RFC 8259: a number that is not finite is null, and text is Unicode.

    Args:
        value: nested containers of text, numbers, booleans and None.
        indent: number of spaces of a level. None: one line.
    """
    text = json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return text.encode(errors="replace").decode()  # bytes of a command line that are not text


def to_json_lines(content: Mapping[str, Any]) -> str:
    """Return an object as the text of a JSON file that has a line for each of its fields."""
    return "{\n" + ",\n".join(f"{to_json(name)}: {to_json(value)}" for name, value in content.items()) + "\n}\n"


def _finite(value: Any) -> Any:
    """Return nested containers with None for each number that is not finite."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
