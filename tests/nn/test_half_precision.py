"""Thousands of steps with parameters in bfloat16, and under autocast: nothing of a step is rounded into all later ones.

bfloat16 rounds a decay of 0.999 to 1. A memory that forgets then keeps everything, which no short sequence shows.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import gyral
from docs.uses import COMPLEX, LAYERS
from tests.helpers.running import ROOT

X, N = 4, 8
OTHERS = {  # the layers that are left out, with the reasons of docs/how-to/layers.md
    "RUM(lambd=1)": "The memory of `RUM(lambd=1)` stays a rotation, but that of all rounded steps.",
    **dict.fromkeys(COMPLEX, "The complex layers have no half precision, as PyTorch has none."),
}
OPTIONS: dict[str, dict[str, Any]] = {"SLiCE": {"dt": 0.01}}  # with dt = 1 the state of 4,000 steps overflows
NAMES = [pytest.param(name, id=name) for name in LAYERS if name not in OTHERS]


@torch.no_grad()
def test_a_memory_of_rotations_in_bfloat16_stays_orthogonal() -> None:
    """Stored in bfloat16, it had singular values of 0.83 to 1.18."""
    _, state = gyral.RUM(X, N, lambd=1.0, eta=1.0, dtype=torch.bfloat16)(torch.randn(4000, 1, X).bfloat16())
    torch.testing.assert_close(torch.linalg.svdvals(state.memory), torch.ones(1, 1, N), rtol=0, atol=1e-3)


@torch.no_grad()
def test_a_real_orthogonal_matrix_in_bfloat16() -> None:
    """Rounded to bfloat16 it is not orthogonal: the hidden vector grew in every step, to 5 times its length."""
    layer = gyral.EURNN(X, N, is_complex=False, dtype=torch.bfloat16)
    inputs = torch.randn(1000, 1, X).bfloat16()
    outputs, _ = layer(inputs)
    assert error(outputs, layer.double()(inputs.double())[0]) <= 0.01


@torch.no_grad()
def test_the_matrix_of_a_gated_orthogonal_unit_in_bfloat16() -> None:
    """Where only the orthogonal matrix acts; rounded to bfloat16, it made the vector up to 6 times as long."""
    layer = gyral.GORU(X, N, dtype=torch.bfloat16)
    for bias, value in zip(layer.cells[0].bias.chunk(3), (100.0, -100.0, 0.0), strict=True):
        bias.fill_(value)
    initial = torch.randn(1, 32, N).bfloat16()
    _, final = layer(torch.zeros(500, 32, X, dtype=torch.bfloat16), initial)
    assert float(final.float().norm() / initial.float().norm()) == pytest.approx(1, abs=0.05)


def made(name: str) -> Any:
    return LAYERS[name]._replace(options=LAYERS[name].options | OPTIONS.get(name, {})).make(X, N).eval()


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.named("S4D", "S5", "MLSTMLarge")
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_4000_steps_in_bfloat16(name: str) -> None:
    """The float64 run has the same rounded weights and inputs."""
    layer, inputs = made(name).bfloat16(), torch.randn(4000, 1, X).bfloat16()
    outputs, _ = layer(inputs)
    assert outputs.dtype == torch.bfloat16
    expected, _ = layer.double()(inputs.double())
    assert error(outputs, expected) <= 0.05
    assert error(outputs[-500:], expected[-500:]) <= 0.05


@pytest.mark.named("DeltaNet", "MLSTM")
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_steps_one_by_one_in_bfloat16(name: str) -> None:
    """The state between two calls has as many digits as within one."""
    layer, inputs = made(name).bfloat16(), torch.randn(100, 1, X).bfloat16()
    outputs, final = layer(inputs)
    state, pieces = None, []
    for step in inputs.split(1):
        output, state = layer(step, state)
        pieces.append(output)
    assert error(torch.cat(pieces), outputs.double()) <= 2e-3
    for one, other in zip(tree_leaves(state), tree_leaves(final), strict=True):
        assert one.dtype == other.dtype


def test_layers_that_are_left_out_have_a_reason_in_the_documentation() -> None:
    page = Path(ROOT, "docs/how-to/layers.md").read_text(encoding="utf-8")
    for name, reason in OTHERS.items():
        assert f"`{name}`" in page
        assert reason in page


# layers with decays, angles or planes that depend on the inputs
GATED = ("Mamba", "Mamba2", "Mamba3", "RWKV7", "MLSTM", "MLSTMLarge", "M2RNN", "GLA", "HGRN2", "KDA", "GatedDeltaNet")
GATED += ("GatedDeltaNet2", "MinGRU", "MinLSTM", "RGLRU", "PDSSM", "RotationScan")


@pytest.mark.named("RotationScan")
@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in GATED])
@torch.no_grad()
def test_2048_steps_under_autocast(name: str) -> None:
    """Inputs that do not change: at all steps, the logit of a decay has the same rounding error."""
    layer, inputs = made(name), 2 * torch.randn(1, 4, X).repeat(2048, 1, 1)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, state = layer(inputs)
    expected, final = layer.double()(inputs.double())
    assert error(outputs[-256:], expected[-256:]) <= 0.03
    assert error(tree_leaves(state)[0], tree_leaves(final)[0]) <= 0.03
