"""The options of a class or function, from its text: those of its constructor, or the annotated attributes of a class
that derives from `gyral.core.options.Options`. Nothing is imported or executed."""

import ast
import re
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from gyral.core.errors import UserError

PACKAGE = Path(__file__).parents[1]
OPTIONS = "gyral.core.options.Options"
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


def small_options(target: str) -> dict[str, Any]:
    """Return the options of a tiny example of a class: what its attribute `small` names.

    A class adds its own to those of its first base class. A task that names the class of its data as `data_class` has
    those of that class, too.

    Args:
        target: see `constructor_defaults`.

    Raises:
        UserError: an attribute `small` is not written out as a dictionary.
    """
    module, _, name = target.rpartition(".")
    file = _find(module)
    return {} if file is None else _small_of(name, _parse(file, file.stat().st_mtime_ns), file)


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
def _parse(file: Path, changed: int) -> ast.Module:
    """Return what a module consists of; of a module that cannot be read, nothing."""
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ast.Module([], [])


@cache
def _read(file: Path, changed: int, name: str) -> dict[str, Argument]:
    return _of_name(name, _parse(file, changed))


def _imported(name: str, tree: ast.Module) -> str | None:
    """Return the dotted name of what a module imports under a name, or None."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return f"{node.module}.{alias.name}"
    return None


def _bases_of(node: ast.ClassDef) -> list[str]:
    """Return the names of the base classes: `Base` and `C` of `class A(Base[B], C)`."""
    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return [base.id for base in bases if isinstance(base, ast.Name)]


def _of_name(name: str, tree: ast.Module) -> dict[str, Argument]:
    """Return the arguments of what a module defines or imports; those of its first base for a class without its own."""
    imported = _imported(name, tree)
    if imported is not None:
        return _arguments(imported)
    for node in tree.body:
        match node:
            case ast.FunctionDef(found) if found == name:
                return _of_signature(node.args)
            case ast.ClassDef(found) if found == name:
                if (declared := _declared(name, tree)) is not None:
                    return declared
                own = [options for each in node.body if (options := _options_of(each, tree)) is not None]
                if not own and (bases := _bases_of(node)):
                    return _of_name(bases[0], tree)
                return {option: value for options in own for option, value in options.items()}
    return {}


def _declared(name: str, tree: ast.Module) -> dict[str, Argument] | None:
    """Return the annotated attributes that are options, or None for a class that has its options otherwise.

    Those of a class stand before those of its base class, as in `gyral.core.options`.
    """
    imported = _imported(name, tree)
    if imported is not None:
        module, _, name = imported.rpartition(".")
        file = _find(module) if imported != OPTIONS else None
        inherited = None if file is None else _declared(name, _parse(file, file.stat().st_mtime_ns))
        return {} if imported == OPTIONS else inherited
    node = next((each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name), None)
    if node is None or "__init__" in {getattr(each, "name", "") for each in node.body}:
        return None
    bases = [_declared(base, tree) for base in _bases_of(node)]
    if all(base is None for base in bases):
        return None
    inherited = {name: each for base in reversed(bases) for name, each in (base or {}).items()}
    own: dict[str, Argument] = {}
    for statement in node.body:
        match statement:
            case ast.AnnAssign(ast.Name(option), annotation, value) if value and _is_option(annotation, value):
                own[option] = _argument(value, annotation)
            case ast.Assign([ast.Name(option)], value) if option in inherited:
                own[option] = _argument(value, None)._replace(annotation=inherited[option].annotation)
    return {**{option: each for option, each in own.items() if option not in inherited}, **inherited, **own}


def _is_option(annotation: ast.expr, value: ast.expr) -> bool:
    """Return whether an attribute with this annotation and value is an option; see `gyral.core.options.Options`."""
    is_set_later = isinstance(value, ast.Call) and "init=False" in ast.unparse(value)
    return not is_set_later and "ClassVar" not in ast.unparse(annotation)


def _small_of(name: str, tree: ast.Module, file: Path) -> dict[str, Any]:
    """Return `small_options` of a class that a module defines or imports."""
    imported = _imported(name, tree)
    if imported is not None:
        return small_options(imported)
    found: dict[str, Any] = {}
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name):
        for base in _bases_of(node)[:1]:
            found |= _small_of(base, tree, file)
        for statement in node.body:
            match statement:
                case ast.Assign([ast.Name("data_class")], ast.Name(data)):
                    found |= _small_of(data, tree, file)
                case ast.Assign([ast.Name("small")], value) | ast.AnnAssign(ast.Name("small"), _, value) if value:
                    found |= _dictionary(value, f"{file}:{statement.lineno}: {name}.small")
    return found


def _dictionary(node: ast.expr, name: str) -> dict[str, Any]:
    """Return a dictionary as it is written out in a module."""
    with suppress(ValueError, TypeError):
        value = ast.literal_eval(node)
        if isinstance(value, dict):
            return value
    raise UserError(f'{name}: must be written out as a dictionary of options, such as {{"length": 6}}')


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
        found[argument.arg] = _argument(default, argument.annotation)
    return found


def _argument(default: ast.expr | None, annotation: ast.expr | None) -> Argument:
    value: Any = NO_LITERAL
    if isinstance(default, ast.Call):  # such as `derived(default=None)` of `gyral.core.options`
        default = next((each.value for each in default.keywords if each.arg == "default"), None)
    if default is not None:
        with suppress(ValueError):
            value = ast.literal_eval(default)
    text = "" if annotation is None else re.sub(r"Annotated\[(\w+), .*\]", r"\1", ast.unparse(annotation))
    return Argument(list(value) if isinstance(value, tuple) else value, text)
