"""`help(gyral.<layer>)` says everything about a layer: equations and source, shapes, every option, an example."""

import inspect
import re
from typing import Any

from torch import Tensor

import gyral
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
