"""The docstrings of layers, which are those of their cells, so that `help(gyral.RUM)` says everything about RUM."""

import re
from inspect import cleandoc, signature
from textwrap import fill
from typing import Any

SECTION = re.compile(r"^(Args|Attributes|Raises|State|Example):\n", re.MULTILINE)


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
    own, cell = _sections(layer.__doc__ or ""), _sections(layer.cell_class.__doc__ or "")
    base = _sections(shared)
    common = _without(base.get("Args", ""), {"bias"} if "bias" in cell.get("Args", "") else set())
    options = _without(cell.get("Args", ""), {"input_size", "hidden_size"})
    for name in {*_names(options)} & {*_names(common)}:  # an option of the cell with the name of one of the layer
        options = re.sub(rf"^(    ){name}\b", rf"\1cell_{name}", options, flags=re.MULTILINE)
    parts = [
        own[""],
        cell[""],
        f"Shapes:\n{_shapes(layer.cell_class)}".rstrip(),
        f"Args:\n{_without(common, {'options'})}{options}".rstrip(),
    ]
    if "Raises" in base:
        parts.append(f"Raises:\n{base['Raises']}".rstrip())
    if example := own.get("Example", cell.get("Example")):
        parts.append(f"Example:\n{example}".rstrip())
    return "\n\n".join(part for part in parts if part) + "\n"


def _sections(docstring: str) -> dict[str, str]:
    """Return the text of each section of a docstring; the text before the first one has the key ""."""
    head, *rest = SECTION.split(cleandoc(docstring))
    return {"": head.strip(), **{name: f"{text.rstrip()}\n" for name, text in zip(rest[::2], rest[1::2], strict=True)}}


def _entries(section: str) -> list[str]:
    """Return the entries of a section of arguments, each with its further lines."""
    return re.findall(r"^ {4}\S.*\n(?:(?: {8}.*)?\n)*", section, re.MULTILINE)


def _names(section: str) -> list[str]:
    return [name.strip(" *") for entry in _entries(section) for name in entry.partition(":")[0].split(",")]


def _without(section: str, names: set[str]) -> str:
    """Return a section of arguments without some entries."""
    return "".join(entry for entry in _entries(section) if not names & {*_names(entry)})


def _shapes(cell_class: Any) -> str:
    return f"""    inputs: (T, B, X); (B, T, X) with `batch_first`; (T, X), one sequence; or a `PackedSequence`.
    outputs: as the inputs, with D · N in place of X unless the cell has another output size; D is 2 with
        `bidirectional`, else 1.
{fill(f"state: {_state(cell_class)}", 112, initial_indent=" " * 4, subsequent_indent=" " * 8)}
"""


def _state(cell_class: Any) -> str:
    """Return what the state of a layer is: by the section "State" of its cell or of a base class, or by the type."""
    for owner in cell_class.__mro__:
        if text := _sections(owner.__doc__ or "").get("State"):
            return f"{' '.join(text.split())} Each tensor has a first dimension num_layers · D before B."
        if "init_state" in vars(owner):
            break
    returned = signature(cell_class.init_state).return_annotation
    state = returned if hasattr(returned, "_fields") else getattr(cell_class, "State", None)
    fields = getattr(state, "_fields", ())
    if fields == ("hidden",):
        return "one tensor (num_layers · D, B, N)."
    named = f" {', '.join(fields)}" if fields else " of its cell"
    described = _sections(getattr(state, "__doc__", None) or "")
    about = " ".join(f"{described['']} {described.get('Attributes', '')}".split())
    return f"a NamedTuple with the fields{named}, each with a first dimension num_layers · D before B. {about}"
