"""Equations of docstrings as MathML: every layer's are set, and every sign of them is in the result."""

import html
import inspect
import re
import unicodedata
from types import ModuleType
from xml.etree import ElementTree

import pytest
from markdown import Markdown

import gyral
from gyral.nn import layers
from tests.helpers.docs import load_script
from tests.helpers.found import at_least


@pytest.fixture(scope="module")
def equations() -> ModuleType:
    return load_script("equations")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("h_{t−1}", "<msub><mi>h</mi><mrow><mi>t</mi><mo>−</mo><mn>1</mn></mrow></msub>"),
        ("W_hh^τ", "<msubsup><mi>W</mi><mrow><mi>hh</mi></mrow><mrow><mi>τ</mi></mrow></msubsup>"),
        ("S_tᵀ", "<msubsup><mi>S</mi><mrow><mi>t</mi></mrow><mrow><mi>T</mi></mrow></msubsup>"),
        ("Σ_i x", "<munder><mo>∑</mo><mrow><mi>i</mi></mrow></munder><mi>x</mi>"),
        ("√(1 − a²)", "<msqrt><mn>1</mn><mo>−</mo><msup><mi>a</mi><mrow><mn>2</mn></mrow></msup></msqrt>"),
        ("tanh(x)", '<mi>tanh</mi><mo stretchy="false">(</mo><mi>x</mi><mo stretchy="false">)</mo>'),
        ("h'", "<msup><mi>h</mi><mrow><mo>′</mo></mrow></msup>"),
    ],
)
def test_the_notation(equations: ModuleType, text: str, wanted: str) -> None:
    assert wanted in equations.formula(text)


def test_prose_and_code(equations: ModuleType) -> None:
    markdown = Markdown(extensions=[equations.Equations()])
    found = markdown.convert("The gate w^w_{t−1} of `x_t`, num_layers · D and rum_associative.")
    assert found.count("<math") == 1
    assert "<code>x_t</code>" in found
    assert "num_layers · D and rum_associative" in found
    assert "<math" not in markdown.reset().convert("    >>> x_t = layer(h_t)\n\n\n    y = f(x)\n")


def test_equations_of_all_layers_are_set_whole(equations: ModuleType) -> None:
    markdown, found = Markdown(extensions=[equations.Equations()]), 0
    for name in sorted({*layers.__all__} - {"Layer"}):
        text = (inspect.getdoc(getattr(gyral, name)) or "").partition("\nShapes:")[0]
        blocks = re.findall(r"(?<=\n\n)(?: {4}.*\n?)+", text)
        for block in filter(equations.is_equation, blocks):
            shown = markdown.reset().convert(block)
            assert "<pre>" not in shown, name
            for formula in re.findall(r"<math.*?</math>", shown):
                tree = ElementTree.fromstring(formula)
                rest = unicodedata.normalize("NFD", html.unescape(tree.attrib["alttext"]))
                letters = {sign for sign in rest if sign.isalpha()} - {*"ΣΠᵀ₀₁₂"}
                assert letters <= {*"".join(tree.itertext())}, (name, formula)
                found += 1
    at_least(120, range(found))
