"""The options of a class and their defaults, from the text of its constructor. Nothing is imported or executed."""

import ast
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]


def constructor_defaults(target: str) -> dict[str, Any]:
    """Return the arguments of a class's constructor that have a default, with their values.

    An argument whose default is not a literal is left out: the constructor alone has it. Classes of other libraries
    have no options here: their constructors have arguments that only programs pass.

    Args:
        target: dotted name of the class, of Gyral or of a module in the current directory or beside it.
    """
    module, _, name = target.rpartition(".")
    file = _find(module)
    return {} if file is None else _defaults(file, file.stat().st_mtime_ns, name)


def _find(module: str) -> Path | None:
    """Return the file of a module of Gyral or of a module that no package installs, without importing it."""
    package, *inner = module.split(".")
    if package == PACKAGE.name:
        path = PACKAGE.joinpath(*inner)
    else:
        found = PathFinder.find_spec(package)
        if found is None or found.origin is None or "site-packages" in found.origin:
            return None
        path = Path(found.origin).parent.joinpath(*inner) if inner else Path(found.origin)
    candidates = (path, path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file() and file.suffix == ".py"), None)


@cache
def _defaults(file: Path, changed: int, name: str) -> dict[str, Any]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    return _literals(inner.args)
            return _inherited(node, tree)
    return {}


def _literals(arguments: ast.arguments) -> dict[str, Any]:
    """Return the arguments with literal defaults."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    pairs += [(argument, default) for argument, default in keywords if default is not None]
    found = {}
    for argument, default in pairs:
        try:
            value = ast.literal_eval(default)
        except ValueError:
            continue
        found[argument.arg] = list(value) if isinstance(value, tuple) else value
    return found


def _inherited(node: ast.ClassDef, tree: ast.Module) -> dict[str, Any]:
    """Return the options of the first base of a class without a constructor."""
    base = node.bases[0] if node.bases else None
    if not isinstance(base, ast.Name):
        return {}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for alias in statement.names:
                if (alias.asname or alias.name) == base.id:
                    return constructor_defaults(f"{statement.module}.{alias.name}")
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name == base.id:
            for inner in statement.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    return _literals(inner.args)
            return _inherited(statement, tree)
    return {}
