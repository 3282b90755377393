"""The options of a class or function, from the text of its constructor. Nothing is imported or executed."""

import ast
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1]
NO_LITERAL = object()  # in place of a default that is missing, or that the text does not show
TEXT = {"str", "Path", "None"}  # the parts of the annotation of an option whose value is a text or a path


class Argument(NamedTuple):
    """An argument of a constructor or function: its default, or `NO_LITERAL`, and the text of its annotation."""

    default: Any
    annotation: str


def constructor_defaults(target: str) -> dict[str, Any]:
    """Return the arguments of a class's constructor that have a default, with their values.

    A task that names the class of its data as `data_class` has the arguments of that class, too. An argument whose
    default is not a literal is left out: the constructor alone has it. Classes of other libraries have no options here:
    their constructors have arguments that only programs pass.

    Args:
        target: dotted name of the class, of Gyral or of a module in the current directory or beside it.
    """
    return {name: one.default for name, one in _arguments(target).items() if one.default is not NO_LITERAL}


def takes_text(target: str, argument: str) -> bool | None:
    """Return whether an argument of a class or function is a text or a path; None if it has no such argument.

    Args:
        target: see `constructor_defaults`.
        argument: name of the argument.
    """
    found = _arguments(target).get(argument)
    if found is None or not found.annotation:
        return None
    parts = {part.strip(" '\"") for part in found.annotation.split("|")}
    return parts <= TEXT and parts != {"None"}


def _arguments(target: str) -> dict[str, Argument]:
    """Return the arguments of a class or function by name, see `constructor_defaults`."""
    module, _, name = target.rpartition(".")
    file = _find(module)
    return {} if file is None else _read(file, file.stat().st_mtime_ns, name)


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
def _read(file: Path, changed: int, name: str) -> dict[str, Argument]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return {}
    return _of_name(name, tree)


def _of_name(name: str, tree: ast.Module) -> dict[str, Argument]:
    """Return the arguments of what a module defines or imports; those of its first base for a class without its own."""
    for node in tree.body:
        match node:
            case ast.ImportFrom(str(module), aliases, 0):
                for alias in aliases:
                    if (alias.asname or alias.name) == name:
                        return _arguments(f"{module}.{alias.name}")
            case ast.FunctionDef(found) if found == name:
                return _of_signature(node.args)
            case ast.ClassDef(found) if found == name:
                own = [options for each in node.body if (options := _options_of(each, tree)) is not None]
                if not own and node.bases and isinstance(node.bases[0], ast.Name):
                    return _of_name(node.bases[0].id, tree)
                return {option: value for options in own for option, value in options.items()}
    return {}


def _options_of(statement: ast.stmt, tree: ast.Module) -> dict[str, Argument] | None:
    """Return the options that a statement in a class defines: its constructor, or the name of the class of its data."""
    match statement:
        case ast.FunctionDef("__init__"):
            return _of_signature(statement.args)
        case ast.Assign([ast.Name("data_class")], ast.Name(data)):
            return _of_name(data, tree)
    return None


def _of_signature(arguments: ast.arguments) -> dict[str, Argument]:
    """Return the arguments of a signature, with their defaults if these are literals."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*(len(positional) - len(arguments.defaults)) * [None], *arguments.defaults, *arguments.kw_defaults]
    found = {}
    for argument, default in zip((*positional, *arguments.kwonlyargs), defaults, strict=True):
        value: Any = NO_LITERAL
        if default is not None:
            with suppress(ValueError):
                value = ast.literal_eval(default)
        annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)
        found[argument.arg] = Argument(list(value) if isinstance(value, tuple) else value, annotation)
    return found
