"""The options of a class and their defaults, from the text of its constructor. Nothing is imported or executed."""

import ast
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]


def constructor_defaults(target: str) -> dict[str, Any]:
    """Return the arguments of a class's constructor that have a default, with their values.

    A task that names the class of its data as `data_class` has the arguments of that class, too. An argument whose
    default is not a literal is left out: the constructor alone has it. Classes of other libraries have no options here:
    their constructors have arguments that only programs pass.

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
    return _of_class(name, tree)


def _of_class(name: str, tree: ast.Module) -> dict[str, Any]:
    """Return the options of a class that a module defines or imports; of its first base if it defines none."""
    for node in tree.body:
        match node:
            case ast.ImportFrom(str(module), aliases, 0):
                for alias in aliases:
                    if (alias.asname or alias.name) == name:
                        return constructor_defaults(f"{module}.{alias.name}")
            case ast.ClassDef(found) if found == name:
                own = [options for each in node.body if (options := _options_of(each, tree)) is not None]
                if not own and node.bases and isinstance(node.bases[0], ast.Name):
                    return _of_class(node.bases[0].id, tree)
                return {option: value for options in own for option, value in options.items()}
    return {}


def _options_of(statement: ast.stmt, tree: ast.Module) -> dict[str, Any] | None:
    """Return the options that a statement in a class defines: its constructor, or the name of the class of its data."""
    match statement:
        case ast.FunctionDef("__init__"):
            return _literals(statement.args)
        case ast.Assign([ast.Name("data_class")], ast.Name(data)):
            return _of_class(data, tree)
    return None


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
