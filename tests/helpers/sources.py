"""Places in Python files that open text without an encoding, which then depends on the locale."""

import ast
from collections.abc import Iterator
from pathlib import Path

BINARY = {"gzip", "bz2", "lzma", "tarfile", "zipfile", "zipped", "Image"}  # whose `open` is binary by default
STREAMS = {"open", "fdopen", "NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile"}
HANDLERS = {"FileHandler", "RotatingFileHandler", "TimedRotatingFileHandler"}


def implicit_encodings(file: Path) -> Iterator[str]:
    """Yield the calls in a file that read or write text without an encoding, as `file:line: call`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and _is_implicit(node):
            yield f"{file}:{node.lineno}: {ast.unparse(node)[:80]}"


def _is_implicit(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if "encoding" in keywords or None in keywords:
        return False
    if {"text", "universal_newlines"} & set(keywords) and name in ("run", "Popen", "check_output"):
        return True
    if name in ("read_text", "write_text"):
        return len(call.args) == (name == "write_text")
    return name in HANDLERS or (name in STREAMS and _is_text(call, keywords))


def _is_text(call: ast.Call, keywords: dict[str | None, ast.expr]) -> bool:
    """Return whether a call of a function named `open` or similar opens text."""
    owner = getattr(call.func.value, "id", "") if isinstance(call.func, ast.Attribute) else ""
    if owner == "os" and call.func.attr == "open":  # type: ignore[union-attr]
        return False
    is_function = owner in {"", "io", "os", "tempfile", *BINARY} and not (
        isinstance(call.func, ast.Attribute) and owner == ""
    )
    place = 1 if is_function and owner != "tempfile" else 0
    mode = keywords.get("mode", call.args[place] if len(call.args) > place else None)
    if not isinstance(mode, ast.Constant) or not isinstance(mode.value, str):
        return owner not in {*BINARY, "tempfile"} and mode is None
    return "b" not in mode.value and (owner not in BINARY or "t" in mode.value)
