"""The options of a class or function, from its text: those of its constructor, or the annotated attributes of a class
that derives from `gyral.core.options.Options`. Nothing of these is imported or executed."""

import ast
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from gyral.core.errors import OptionError, UserError
from gyral.core.inputs import find_fault, path_of

PACKAGE = Path(__file__).parents[1]
OPTIONS = "gyral.core.options.Options"
NO_LITERAL = object()  # in place of a default that is missing, or that the text does not show
# what pydantic says of a text for a number or boolean, also of the types in `gyral.core.options`
WRONG_TEXTS = {
    **dict.fromkeys(("int", "PositiveInt", "NonNegativeInt"), "a valid integer"),
    **dict.fromkeys(("float", "FiniteFloat", "PositiveFloat", "Probability"), "a valid number"),
    "bool": "a valid boolean",
}
TEXT = {"str", "Path", "None"}  # the parts of the annotation of an option whose value is a text or a path

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
    parts = {part.strip(" '\"") for part in found.annotation.split("|")}
    return parts <= TEXT and parts != {"None"}


def check_given(config: DictConfig, overrides: Sequence[str]) -> None:
    """Check the values on the command line that are texts, before anything that takes time is imported.

    Other values, and types that are not written out, are checked when the configuration is instantiated.

    Args:
        config: the configuration.
        overrides: the words of the command line.

    Raises:
        OptionError: a text for a number or a boolean, or a path of a file that does not exist.
    """
    for key in (word.lstrip("+").partition("=")[0] for word in overrides):
        section, _, name = key.rpartition(".")
        value = OmegaConf.select(config, key) if section and not section.startswith("~") else None
        if isinstance(value, str):
            target = OmegaConf.select(config, section).get("_target_")
            argument = _arguments(target).get(name) if isinstance(target, str) else None
            if argument is not None and (fault := _fault(value, argument.annotation)):
                raise OptionError(key, value, fault)


def _fault(value: str, annotation: str) -> str | None:
    """Return what is wrong with the text of an option whose type is annotated, or None."""
    kinds = [part.strip(" '\"") for part in annotation.split("|")]
    null = "null or " if "None" in kinds else ""
    if set(kinds) <= {"None", *WRONG_TEXTS}:
        return f"must be {null}{WRONG_TEXTS[kinds[0]]}"
    looks_like_path = "/" in value and not re.search(r"[:*?\[]", value)
    if "Path" in kinds and looks_like_path and not os.path.lexists(path := path_of(value)):
        return find_fault(path)
    return None


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
    own = {name: _argument(*each) for name, each in attributes.items() if each[1] or name in inherited}
    own |= {name: each._replace(annotation=inherited[name][1]) for name, each in own.items() if not each.annotation}
    # those of a class stand before those of its base classes, as in `gyral.core.options`
    return {name: own[name] for name in own if name not in inherited} | inherited | own, True


def _of_signature(arguments: ast.arguments) -> dict[str, Argument]:
    """Return the arguments of a signature, with their defaults if these are literals."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*(len(positional) - len(arguments.defaults)) * [None], *arguments.defaults, *arguments.kw_defaults]
    each = zip((*positional, *arguments.kwonlyargs), defaults, strict=True)
    return {argument.arg: _argument(default, argument.annotation) for argument, default in each}


def _argument(default: ast.expr | None, annotation: ast.expr | None) -> Argument:
    value: Any = NO_LITERAL
    if isinstance(default, ast.Call):  # such as `derived(default=None)` of `gyral.core.options`
        default = next((each.value for each in default.keywords if each.arg == "default"), None)
    if default is not None:
        with suppress(ValueError):
            value = ast.literal_eval(default)
    text = "" if annotation is None else re.sub(r"Annotated\[(\w+), .*\]", r"\1", ast.unparse(annotation))
    return Argument(list(value) if isinstance(value, tuple) else value, text)


def _definition(target: str) -> tuple[Definition, _Module] | None:
    """Return the definition of a class or function and its module, None if neither Gyral nor the user has it."""
    seen: set[str] = set()
    while target not in seen and (module := _module(target.rpartition(".")[0])) is not None:
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


def _module(name: str) -> _Module | None:
    """Return the text of a module of Gyral or of one that no package installs, without importing it; None of others."""
    package, *inner = name.split(".")
    if package == PACKAGE.name:
        path = PACKAGE.joinpath(*inner)
    else:
        found = PathFinder.find_spec(package)
        if found is None or found.origin is None or "site-packages" in found.origin:
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
