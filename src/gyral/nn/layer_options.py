"""Signatures and docstrings of layers, made from those of their cells."""

import inspect
import re
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

SIZES = ("input_size", "hidden_size")


class ConstructorSignature:
    """The attribute `__signature__` of a class; its instances have none, since they have another signature."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature

    def __get__(self, instance: Any, owner: type) -> Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        return self.signature


def named_parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a class or function that have a name of their own, by name."""
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    found = inspect.signature(function).parameters
    return {name: parameter for name, parameter in found.items() if parameter.kind not in variable}


def option_names(layer: Callable[..., Any], cell_class: type) -> dict[str, str]:
    """Return the options of a cell by their names in the layer: `cell_<name>` for a name that the layer uses itself."""
    own = named_parameters(layer)
    names = [name for name in named_parameters(cell_class) if name not in SIZES]
    return {f"cell_{name}" if name in own else name: name for name in names}


def layer_signature(layer: Callable[..., Any], cell_class: type) -> Signature:
    """Return the signature of the layer of a cell.

    Args:
        layer: The constructor of layers, without `self`; it passes its other options to the cell.
        cell_class: The class of the cell.
    """
    own, of_cell = named_parameters(layer), named_parameters(cell_class)
    options = [
        of_cell[name].replace(name=public, kind=Parameter.KEYWORD_ONLY)
        for public, name in option_names(layer, cell_class).items()
    ]
    return Signature([*own.values(), *options])


def layer_docstring(summary: str | None, layer: type, names: dict[str, str], cell_class: type) -> str:
    """Return the docstring of the layer of a cell, with all arguments.

    Args:
        summary: First paragraphs of the docstring.
        layer: The class whose docstring describes the arguments of all layers.
        names: See `option_names`.
        cell_class: The class whose docstring describes its options.
    """
    own = {name: text for name, text in arguments_of(layer).items() if not name.startswith("*")}
    of_cell = arguments_of(cell_class)
    described = {public: of_cell[name] for public, name in names.items() if name in of_cell}
    lines = [f"    {name}: {text}" for name, text in (own | described).items()]
    return "\n".join([summary or "", "", "Args:", *lines])


def arguments_of(documented: type) -> dict[str, str]:
    """Return the entries of the section "Args" of a Google docstring, in which `a, b: text` is an entry of a and of b.

    The lines of a text after the first keep their indentation of eight spaces.
    """
    section = re.search(r"^Args:\n((?: .*\n?)+)", inspect.getdoc(documented) or "", re.MULTILINE)
    if section is None:
        return {}
    entries = re.findall(r"^ {4}(\S[^:]*): ((?:.*)(?:\n {8}.*)*)", section[1], re.MULTILINE)
    return {name: text for names, text in entries for name in names.split(", ")}
