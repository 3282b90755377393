"""`help(gyral.<layer>)` says everything about a layer: equations and source, shapes, every option, an example."""

import ast
import inspect
import re
from typing import Any

from torch import Tensor

import gyral
from gyral import cells
from gyral.cells.docstrings import entries, names, sections
from gyral.core import PACKAGE
from gyral.nn import layers
from tests.helpers.found import at_least
from tests.helpers.loops import for_each

REQUIRED = {"FSRNN": {"fast": gyral.LSTMCell, "slow": gyral.LSTMCell}}
NAMES = [name for name in at_least(42, layers.__all__) if name != "Layer"]


@for_each("name", NAMES)
def test_docstring_has_shapes_every_option_and_an_example(name: str) -> None:
    layer = getattr(gyral, name)
    text = inspect.getdoc(layer) or ""
    described, _, example = text.partition("\nExample:\n")
    description, _, options = described.partition("\nArgs:\n")
    assert "\nShapes:\n    inputs: " in description
    assert re.search(r"(19|20)\d\d|torch\.nn", description), "no source"
    assert f"{name}(" in example
    entries = re.findall(r"^ {4}([\w*, ]+): ", options, re.MULTILINE)
    named = {word.strip(" *") for entry in entries for word in entry.split(",")}
    own = {*inspect.signature(layer.__init__).parameters} - {"self", "options", "bias"}
    assert own <= named | {"kwargs"}, sorted(own - named)
    assert {"device", "dtype", "backend", "locked_dropout", "weight_drop"} <= named


DELTA = ("DeltaNet", "GatedDeltaNet", "DeltaProduct", "KDA", "GatedDeltaNet2")
# options with which the state has its other form
OTHER_FORMS: dict[str, dict[str, Any]] = {
    "RUM": {"lambd": 1.0},
    "GLA": {"kernel_size": 4},
    **{name: {"kernel_size": None} for name in DELTA},
}


@for_each("name", NAMES)
def test_help_says_what_the_state_is(name: str) -> None:
    [about] = re.findall(r"^    state: (.*?)\n(?! {8})", inspect.getdoc(getattr(gyral, name)) or "", re.M | re.S)
    text, required = " ".join(about.split()), REQUIRED.get(name, {})
    forms = [required, *([OTHER_FORMS[name]] if name in OTHER_FORMS else [])]
    for options in forms:
        state = getattr(gyral, name)(4, 8, **options).init_state(1)
        if isinstance(state, Tensor):
            assert "one tensor" in text.lower()
        else:
            fields = ", ".join(state._fields)
            assert f"NamedTuple ({fields})" in text or f"NamedTuple with the fields {fields}, " in text
    if len(forms) == 1:
        assert ("one tensor" in text.lower()) == isinstance(state, Tensor)
    assert "num_layers · D" in text


def test_the_docstring_of_a_layer_comes_before_that_of_its_cell() -> None:
    class Bare(layers.Layer):
        cell_class = gyral.GRUCell

    class Own(layers.Layer):
        """My layer.

        Example:
            >>> Own(3, 4)
        """

        cell_class = gyral.GRUCell

    class WithoutDocstring(gyral.GRUCell):
        pass

    class Nothing(layers.Layer):
        cell_class = WithoutDocstring

    assert Bare.__doc__ == gyral.GRU.__doc__
    assert Own.__doc__ is not None
    assert Own.__doc__.startswith("My layer.\n\nGated recurrent unit.\n\nGRU (Cho et al. 2014)")
    assert Own.__doc__.endswith("Example:\n    >>> Own(3, 4)\n")
    assert Nothing.__doc__ is None


CELLS = [name for name in at_least(45, cells.modules()) if name != "ExternalCell"]


@for_each("name", CELLS)
def test_help_of_a_cell_describes_its_options_and_errors(name: str) -> None:
    cell = getattr(gyral, name)
    found = sections(inspect.getdoc(cell) or "")
    assert {*inspect.signature(cell).parameters} <= {*names(found["Args"])}
    assert "OptionError" in names(found["Raises"])
    assert len(found["Example"].splitlines()) > 4


def test_a_docstring_does_not_repeat_what_its_base_class_says() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((PACKAGE / "cells").glob("*.py"))]
    nodes = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}

    def described(node: ast.ClassDef) -> set[str]:
        found = sections(ast.get_docstring(node) or "")
        return {entry for section in ("Args", "Raises") for entry in entries(found.get(section, ""))}

    repeated = {}
    for name, node in nodes.items():
        above: set[str] = set()
        base: ast.ClassDef | None = node
        while base is not None:
            bases = [ast.unparse(each) for each in base.bases]
            base = nodes.get(bases[0]) if bases else None
            above |= described(base) if base is not None else set()
        if common := described(node) & above:
            repeated[name] = sorted(common)
    assert repeated == {}


def test_a_cell_of_a_user_has_the_options_of_its_base_class() -> None:
    class Own(gyral.GRUCell):
        """My cell.

        Example:
            >>> layer = Mine(3, 4, depth=2)
        """

        def __init__(self, input_size: int, hidden_size: int, *, zoneout: float = 0.0) -> None:
            super().__init__(input_size, hidden_size, zoneout=zoneout)

    found = sections(Own.__doc__ or "")
    assert names(found["Args"]) == ["input_size", "hidden_size", "zoneout"]
    assert found["Example"].splitlines()[1:] == [
        "    >>> from gyral import Mine",
        "    >>> layer = Mine(3, 4, depth=2)",
        "    >>> outputs, state = layer(torch.randn(50, 8, 3))",
        "    >>> outputs.shape",
        "    torch.Size([50, 8, 4])",
    ]
