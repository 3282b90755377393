"""The docstrings of layers, completed by those of their cells, so that `help(gyral.RUM)` says everything about RUM."""

import re
from inspect import cleandoc, signature
from typing import Any

SECTION = re.compile(r"^(Args|Attributes|Raises|Example):\n", re.MULTILINE)
INHERITED = re.compile(r"\n*It takes the options of `[\w.]+` and `[\w.]+`\.\n*")


def complete_docstring(layer: Any, shared: str) -> str:
    """Return the docstring of a layer: its own, then equations, sources and options of its cell, and all shapes.

    Args:
        layer: a subclass of `gyral.nn.layers.base.Layer` with a docstring and the attribute `cell_class`.
        shared: the docstring of `Layer`.
    """
    own, cell = _sections(layer.__doc__), _sections(layer.cell_class.__doc__ or "")
    base = _sections(shared)
    common = _without(base.get("Args", ""), {"bias"} if "bias" in cell.get("Args", "") else set())
    options = _without(cell.get("Args", ""), {"input_size", "hidden_size"})
    for name in {*_names(options)} & {*_names(common)}:  # an option of the cell with the name of one of the layer
        options = re.sub(rf"^(    ){name}\b", rf"\1cell_{name}", options, flags=re.MULTILINE)
    parts = [
        INHERITED.sub("\n\n", own[""]).strip(),
        cell[""],
        f"Shapes:\n{_shapes(layer.cell_class)}".rstrip(),
        f"Args:\n{_without(common, {'options'})}{options}".rstrip(),
    ]
    if "Raises" in base:
        parts.append(f"Raises:\n{base['Raises']}".rstrip())
    if "Example" in own:
        parts.append(f"Example:\n{own['Example']}".rstrip())
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
    fields = getattr(signature(cell_class.init_state).return_annotation, "_fields", ())
    if fields == ("hidden",):
        kept = "one tensor (num_layers · D, B, N)."
    else:
        named = f" {', '.join(fields)}" if fields else " of its cell"
        kept = f"a NamedTuple with the fields{named}, each with a first dimension num_layers · D before B."
    return f"""    inputs: (T, B, X); (B, T, X) with `batch_first`; (T, X), one sequence; or a `PackedSequence`.
    outputs: as the inputs, with D · N in place of X unless the cell has another output size; D is 2 with
        `bidirectional`, else 1.
    state: {kept}
"""
