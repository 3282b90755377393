"""The options of a class or function, from its text: those of its constructor, or the annotated attributes of a class
that derives from `gyral.core.options.Options`. Nothing of these is imported or executed, but for
annotations that consist of the names in `TYPES`."""

import ast
import re
import typing
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from gyral.core import options
from gyral.core.errors import UserError

PACKAGE = Path(__file__).parents[1]
OPTIONS = "gyral.core.options.Options"
NO_LITERAL = object()  # in place of a default that is missing, or that the text does not show
# Names in annotations of options; others of `gyral.core.options` may mean something else in the module of a class. A
# value on the command line is never a tensor.
NAMES = ("Range", "Increasing", "OneOf", "PositiveInt", "NonNegativeInt", "PositiveFloat", "FiniteFloat", "Probability")
BUILTIN_TYPES = {each.__name__: each for each in (bool, int, float, str, list, tuple, dict)}
RANGES = {name: getattr(options, name) for name in NAMES}
TYPES = vars(typing) | RANGES | {"Path": Path, "Tensor": type("Tensor", (), {})}

Definition = ast.ClassDef | ast.FunctionDef


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


def options_of(target: str) -> list[str]:
    """Return the names of the arguments of a class or function, see `constructor_defaults`; none if it is unknown."""
    return list(_arguments(target))


def takes_text(target: str, argument: str) -> bool | None:
    """Return whether an argument of a class or function is a text or a path; None if it has no such argument.

    Args:
        target: see `constructor_defaults`.
        argument: name of the argument.
    """
    found = _arguments(target).get(argument)
    if found is None or not found.annotation:
        return None
    kinds = options.kinds_of(type_of(found.annotation))
    return kinds.keys() <= {str, Path, NoneType} and kinds.keys() != {NoneType}


def annotations_of(target: str) -> dict[str, str]:
    """Return the texts of the annotations of the arguments of a class or function, also of an installed package.

    Args:
        target: dotted name of the class or function.
    """
    if (found := _definition(target, installed=True)) is None:
        return {}
    node, module = found
    if "site-packages" in str(module.file):  # its base classes are not read
        constructors = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        return {name: one.annotation for each in constructors for name, one in _of_signature(each.args).items()}
    return {name: one.annotation for name, one in _read(node, module)[0].items()}


@cache
def type_of(annotation: str) -> Any:
    """Return the type that an annotation stands for, with its range if that is written out.

    It is `Any` if the annotation consists of other names than `TYPES`.
    """
    for text in (annotation, re.sub(r"Annotated\[(\w+), .*\]", r"\1", annotation)):
        with suppress(NameError, TypeError, SyntaxError, AttributeError, ValueError):
            found = eval(text, {"__builtins__": BUILTIN_TYPES}, TYPES)
            return Any if isinstance(found, str) else found
    return Any


def small_options(target: str) -> dict[str, Any]:
    """Return the options of a tiny example of a class: what its attribute `small` names.

    A class adds its own to those of its first base class. A task that names the class of its data as `data_class` has
    those of that class, too.

    Args:
        target: see `constructor_defaults`.

    Raises:
        UserError: an attribute `small` is not written out as a dictionary.
    """
    if (found := _definition(target)) is None:
        return {}
    node, module = found
    small = next(map(small_options, _bases_of(node, module)), {})
    for statement in node.body if isinstance(node, ast.ClassDef) else ():
        match statement:
            case ast.Assign([ast.Name("data_class")], ast.Name(data)):
                small |= small_options(module.meanings.get(data, ""))
            case ast.Assign([ast.Name("small")], value) | ast.AnnAssign(ast.Name("small"), _, value) if value:
                small |= _dictionary(value, f"{module.file}:{statement.lineno}: {node.name}.small")
    return small


def _dictionary(node: ast.expr, name: str) -> dict[str, Any]:
    """Return a dictionary as it is written out in a module."""
    with suppress(ValueError, TypeError):
        value = ast.literal_eval(node)
        if isinstance(value, dict):
            return value
    raise UserError(f'{name}: must be written out as a dictionary of options, such as {{"length": 6}}')


@dataclass(eq=False)  # `_parse` makes one for each text, which `_read` reads once
class _Module:
    """The text of a module.

    Attributes:
        file: its file.
        definitions: the classes and functions in it, by name.
        meanings: the dotted names of these and of what it imports, by name.
    """

    file: Path
    definitions: dict[str, Definition]
    meanings: dict[str, str]


def _arguments(target: str) -> dict[str, Argument]:
    """Return the arguments of a class or function by name, see `constructor_defaults`."""
    return {} if (found := _definition(target)) is None else _read(*found)[0]


@cache
def _read(node: Definition, module: _Module) -> tuple[dict[str, Argument], bool]:
    """Return the arguments of a class or function, and whether they are its annotated attributes."""
    if isinstance(node, ast.FunctionDef):
        return _of_signature(node.args), False
    if module.meanings[node.name] == OPTIONS:
        return {}, True
    constructor: list[dict[str, Argument]] = []  # of the class itself and of its data
    attributes: dict[str, tuple[ast.expr, ast.expr | None]] = {}
    for statement in node.body:
        match statement:
            case ast.FunctionDef("__init__"):
                constructor.append(_of_signature(statement.args))
            case ast.Assign([ast.Name("data_class")], ast.Name(data)):
                constructor.append(_arguments(module.meanings.get(data, "")))
            case ast.Assign([ast.Name(name)], value):
                attributes[name] = value, None
            case ast.AnnAssign(ast.Name(name), annotation, value) if value:
                is_set_later = isinstance(value, ast.Call) and "init=False" in ast.unparse(value)
                if not is_set_later and "ClassVar" not in ast.unparse(annotation):
                    attributes[name] = value, annotation
    if constructor:
        return {name: each for arguments in constructor for name, each in arguments.items()}, False
    bases = [_read(*found) for base in _bases_of(node, module) if (found := _definition(base)) is not None]
    declared = [arguments for arguments, are_attributes in bases if are_attributes]
    if not declared:
        return next(filter(None, (arguments for arguments, _ in bases)), {}), False
    inherited = {name: each for arguments in reversed(declared) for name, each in arguments.items()}
    own = _arguments_of((name, *each) for name, each in attributes.items() if each[1] or name in inherited)
    own |= {name: each._replace(annotation=inherited[name][1]) for name, each in own.items() if not each.annotation}
    # those of a class stand before those of its base classes, as in `gyral.core.options`
    return {name: own[name] for name in own if name not in inherited} | inherited | own, True


def _of_signature(arguments: ast.arguments) -> dict[str, Argument]:
    """Return the arguments of a signature, with their defaults if these are literals."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*(len(positional) - len(arguments.defaults)) * [None], *arguments.defaults, *arguments.kw_defaults]
    each = zip((*positional, *arguments.kwonlyargs), defaults, strict=True)
    return _arguments_of((argument.arg, default, argument.annotation) for argument, default in each)


def _arguments_of(written: Iterable[tuple[str, ast.expr | None, ast.expr | None]]) -> dict[str, Argument]:
    """Return arguments by their names, from their names, defaults and annotations in the text."""
    found = {}
    for name, default, annotation in written:
        value: Any = NO_LITERAL
        if isinstance(default, ast.Call):  # such as `derived(default=None)` of `gyral.core.options`
            default = next((each.value for each in default.keywords if each.arg == "default"), None)
        if default is not None:
            with suppress(ValueError):
                value = ast.literal_eval(default)
        text = "" if annotation is None else ast.unparse(annotation)
        found[name] = Argument(list(value) if isinstance(value, tuple) else value, text)
    return found


def _definition(target: str, installed: bool = False) -> tuple[Definition, _Module] | None:
    """Return the definition of a class or function and its module, None if neither Gyral nor the user has it."""
    seen: set[str] = set()
    while target not in seen and (module := _module(target.rpartition(".")[0], installed)) is not None:
        seen.add(target)
        name = target.rpartition(".")[2]
        if (meaning := module.meanings.get(name, target)) == target:
            return (module.definitions[name], module) if name in module.definitions else None
        target = meaning  # the module imports it
    return None


def _bases_of(node: Definition, module: _Module) -> list[str]:
    """Return the dotted names of the base classes: of `Base` and `C` for `class A(Base[B], C)`."""
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    names = [base.value if isinstance(base, ast.Subscript) else base for base in bases]
    found = [module.meanings.get(name.id, "") for name in names if isinstance(name, ast.Name)]
    return [base for base in found if base != module.meanings[node.name]]  # one of the same name, defined elsewhere


def _module(name: str, installed: bool = False) -> _Module | None:
    """Return the text of a module without importing it; None of one in a package that is installed, unless asked."""
    package, *inner = name.split(".")
    if package == PACKAGE.name:
        path = PACKAGE.joinpath(*inner)
    else:
        found = PathFinder.find_spec(package)
        if found is None or found.origin is None or (not installed and "site-packages" in found.origin):
            return None
        path = Path(found.origin).parent.joinpath(*inner) if inner else Path(found.origin)
    for file in (path, path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file() and file.suffix == ".py":
            return _parse(name, file, file.stat().st_mtime_ns)
    return None


@cache
def _parse(name: str, file: Path, changed: int) -> _Module:
    """Return the text of a module; one that cannot be read has nothing in it."""
    definitions: dict[str, Definition] = {}
    imported: dict[str, str] = {}
    with suppress(OSError, ValueError, SyntaxError):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, Definition):
                definitions.setdefault(node.name, node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return _Module(file, definitions, {own: f"{name}.{own}" for own in definitions} | imported)
