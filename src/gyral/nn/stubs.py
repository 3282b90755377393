"""Writes layers.pyi, from which editors and type checkers know the options of each layer: python -m gyral.nn.stubs."""

import inspect
from inspect import Parameter
from pathlib import Path
from textwrap import indent
from types import UnionType
from typing import Any, get_args, get_origin

from gyral.nn import layers
from gyral.nn.layers import Layer

PATH = Path(layers.__file__).with_suffix(".pyi")
HEAD = '''"""{doc}"""

# Made by `python -m gyral.nn.stubs`; do not edit.

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gyral.cells.base import RecurrentCell, State
from gyral.core.edges import Edges
from gyral.nn.recurrent import RecurrentBase
'''
BASE = """
class Layer(RecurrentBase):
{doc}

    cell_class: ClassVar[type[RecurrentCell]]
    hidden_size: int
    def __init__(
{constructor},
        **options: Any,
    ) -> None: ...
    def __call__(
{call},
    ) -> tuple[Any, Any]: ...
    def forward(
{call},
    ) -> tuple[Any, Any]: ...
    def split_state(self, state: Any, batch_size: int) -> tuple[State, ...]: ...
    def join_states(self, states: tuple[State, ...]) -> Any: ...
    def flatten_parameters(self) -> None: ...

class TorchWeights(nn.Module): ...
"""
LAYER = """
class {name}({bases}):
{doc}

    def __init__(
{constructor},
    ) -> None: ...
"""


def layer_stubs() -> str:
    """Return the text of layers.pyi."""
    parts = [HEAD.format(doc=inspect.getdoc(layers))]
    parts.append(
        BASE.format(doc=_docstring(Layer), constructor=_parameters(Layer.__init__), call=_parameters(Layer.forward))
    )
    for layer in Layer.__subclasses__():
        if layer.__module__ == layers.__name__:
            bases = ", ".join(base.__name__ for base in layer.__bases__)
            constructor = "        self,\n" + _parameters(layer)
            parts.append(LAYER.format(name=layer.__name__, bases=bases, doc=_docstring(layer), constructor=constructor))
    return "".join(parts)


def _docstring(documented: type) -> str:
    return indent(f'"""{inspect.getdoc(documented)}\n"""', "    ")


def _parameters(function: Any) -> str:
    """Return the parameters of a class or function, one a line."""
    lines, star = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            continue
        if parameter.kind is Parameter.KEYWORD_ONLY and not star:
            lines.append("*")
            star = True
        annotation = "" if parameter.annotation is Parameter.empty else f": {_type(parameter.annotation)}"
        value = parameter.default
        shown = f'"{value}"' if isinstance(value, str) else repr(value)
        default = "" if value is Parameter.empty else f" = {shown}"
        lines.append(f"{parameter.name}{annotation}{default}")
    return indent(",\n".join(lines), " " * 8)


def _type(annotation: Any) -> str:
    """Return an annotation as source code."""
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is Ellipsis:
        return "..."
    if isinstance(annotation, list):
        return f"[{', '.join(map(_type, annotation))}]"
    if isinstance(annotation, UnionType):
        return " | ".join(map(_type, get_args(annotation)))
    origin = get_origin(annotation)
    if origin is not None:
        return f"{_type(origin)}[{', '.join(map(_type, get_args(annotation)))}]"
    name: str = getattr(annotation, "__name__", str(annotation))
    return f"torch.{name}" if getattr(annotation, "__module__", "") == "torch" and name != "Tensor" else name


if __name__ == "__main__":
    PATH.write_text(layer_stubs())
