"""The docstrings of layers, which are those of their cells, so that `help(gyral.RUM)` says everything about RUM."""

import re
from inspect import getdoc, signature
from textwrap import fill
from typing import Any

from gyral.cells.docstrings import names, sections, without


def complete_docstring(layer: Any, shared: str) -> str | None:
    """Return the docstring of a layer: its own, then equations, sources and options of its cell, and all shapes.

    Args:
        layer: a subclass of `gyral.nn.layers.base.Layer` with the attribute `cell_class`.
        shared: the docstring of `Layer`.

    Returns:
        The docstring, or None if neither the layer nor its cell has one.
    """
    if not (layer.__doc__ or layer.cell_class.__doc__):
        return None
    own, cell = sections(layer.__doc__ or ""), sections(layer.cell_class.__doc__ or "")
    base = sections(shared)
    common = without(base.get("Args", ""), {"bias"} if "bias" in cell.get("Args", "") else set())
    options = without(cell.get("Args", ""), {"input_size", "hidden_size"})
    for name in {*names(options)} & {*names(common)}:  # an option of the cell with the name of one of the layer
        options = re.sub(rf"^(    ){name}\b", rf"\1cell_{name}", options, flags=re.MULTILINE)
    parts = [
        own[""],
        cell[""],
        f"Shapes:\n{_shapes(layer.cell_class)}".rstrip(),
        f"Args:\n{without(common, {'options'})}{options}".rstrip(),
    ]
    if "Raises" in base:
        parts.append(f"Raises:\n{base['Raises']}".rstrip())
    if example := own.get("Example", cell.get("Example")):
        parts.append(f"Example:\n{example}".rstrip())
    return "\n\n".join(part for part in parts if part) + "\n"


def _shapes(cell_class: Any) -> str:
    return f"""    inputs: (T, B, X); (B, T, X) with `batch_first`; (T, X), one sequence; or a `PackedSequence`.
    outputs: as the inputs, with D · N in place of X unless the cell has another output size; D is 2 with
        `bidirectional`, else 1.
{fill(f"state: {_state(cell_class)}", 112, initial_indent=" " * 4, subsequent_indent=" " * 8)}
"""


def _state(cell_class: Any) -> str:
    """Return the description of the state of a layer: by the section "State" of its cell, or by the type."""
    if text := sections(getdoc(cell_class) or "").get("State"):
        return f"{' '.join(text.split())} Each tensor has a first dimension num_layers · D before B."
    returned = signature(cell_class.init_state).return_annotation
    state = returned if hasattr(returned, "_fields") else getattr(cell_class, "State", None)
    fields = getattr(state, "_fields", ())
    if fields == ("hidden",):
        return "one tensor (num_layers · D, B, N)."
    named = f" {', '.join(fields)}" if fields else " of its cell"
    described = sections(getattr(state, "__doc__", None) or "")
    about = " ".join(f"{described['']} {described.get('Attributes', '')}".split())
    return f"a NamedTuple with the fields{named}, each with a first dimension num_layers · D before B. {about}"
