"""Every layer with its default options at every small hidden size: it computes something, or names what is allowed.

The normalization of a single number is zero, and its gradient is, too. Nothing fails, and nothing is learned.
"""

import re
from functools import partial
from typing import Any

import pytest
import torch

import gyral
from docs.uses import LAYERS
from gyral.core.errors import OptionError

REQUIRED: dict[str, dict[str, Any]] = {"FSRNN": {"fast": gyral.LSTMCell, "slow": gyral.LSTMCell}}
REFUSED = {  # at a hidden size of 1, with the reason
    "RUM": r"hidden_size=1: must be an integer ≥ 2",
    "RotationScan": r"hidden_size=1: must be an integer ≥ 2",
    "ONLSTM": r"hidden_size=1: must be an integer ≥ 2",
    "GORU": r"capacity=2: must be an integer from 1 to 1, or fft",
    "EURNN": r"capacity=2: must be an integer from 1 to 1, or fft",
    **dict.fromkeys(("MLSTM", "MLSTMLarge", "SLSTM", "RWKV7"), r"hidden_size=1: must be an integer ≥ 2"),
    **dict.fromkeys(("FastWeights", "WeiNet"), r"hidden_size=1: must be an integer ≥ 2"),
}
WINDOWS = ("LightConv", "DynamicConv")  # which read no further back than their kernels
STEPS, X = 8, 4
NAMES = sorted({layer.name for layer in LAYERS.values()})
FEW = {
    "MLSTMLarge": (1, 2, 3, 8),
    "MLSTM": (3,),
    "ONLSTM": (2, 8),
    "LightConv": (1,),
    "RotationScan": (3,),
    "SLSTM": (1,),
}
CASES = [pytest.param(name, size, id=f"{name}-{size}") for name in NAMES for size in range(1, 17)]


@pytest.mark.named(*(f"{name}-{size}" for name, sizes in FEW.items() for size in sizes))
@pytest.mark.parametrize(("name", "size"), CASES)
def test_default_options(name: str, size: int) -> None:
    make = partial(getattr(gyral, name), X, size, dtype=torch.float64, **REQUIRED.get(name, {}))
    if size == 1 and name in REFUSED:
        with pytest.raises(OptionError, match=f"^{re.escape(REFUSED[name])}$"):
            make()
        return
    layer = make().eval()
    inputs = torch.randn(STEPS, 3, X, dtype=torch.float64)
    inputs[1:, 1] = inputs[1:, 0]  # two rows that differ in their first step alone
    inputs.requires_grad_()
    outputs, _ = layer(inputs)
    assert outputs.isfinite().all()
    assert (outputs[:, 0] - outputs[:, 2]).abs().max() > 1e-4, "outputs do not depend on the inputs"
    assert (outputs[0, 0] - outputs[0, 1]).abs().max() > 0
    if name not in WINDOWS:
        assert (outputs[-1, 0] - outputs[-1, 1]).abs().max() > 0, "the memory does nothing"
    wanted = [inputs, *layer.parameters()]
    gradients = torch.autograd.grad(outputs.square().sum(), wanted, materialize_grads=True)
    assert gradients[0].abs().max() > 1e-9
    assert sum(bool(gradient.any()) for gradient in gradients) > len(gradients) / 2


@pytest.mark.parametrize(("name", "heads"), [("MLSTM", 6), ("MLSTMLarge", 7), ("SLSTM", 6), ("RWKV7", 6)])
def test_heads_of_a_single_number_are_refused(name: str, heads: int) -> None:
    message = f"heads={heads}: must be below hidden_size, 6: a single number is normalized to zero"
    with pytest.raises(OptionError, match=f"^{message}$"):
        getattr(gyral, name)(X, 6, heads=heads)


def test_defaults_of_larger_layers_equal_those_of_the_published_models() -> None:
    assert gyral.MLSTMLarge(X, 9).cells[0].heads == 8
    assert gyral.MLSTM(X, 5).cells[0].heads == 4
    assert gyral.ONLSTM(X, 11).cells[0].chunk_size == 10
    assert gyral.LightConv(X, 4).cells[0].heads == gyral.DynamicConv(X, 4).cells[0].heads == 4
    assert gyral.RotationScan(X, 4).cells[0].heads == 4
