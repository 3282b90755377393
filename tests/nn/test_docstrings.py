"""`help(gyral.<layer>)` says everything about a layer: equations and source, shapes, every option, an example."""

import inspect
import re

import gyral
from gyral.nn import layers
from tests.helpers.found import at_least
from tests.helpers.loops import for_each

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


def test_a_layer_without_a_docstring_has_none() -> None:
    class Bare(layers.Layer):
        cell_class = gyral.GRUCell

    assert Bare.__doc__ is None
