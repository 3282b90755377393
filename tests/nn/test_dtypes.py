"""Every layer in every floating dtype, pure and under autocast, on every backend: it trains and evaluates, or refuses.

`auto` is the fused path in float32 and float64, and the reference in half precision.
`tests.training.test_precision` has the same for whole runs.
"""

from contextlib import nullcontext
from functools import cache, partial

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import gyral
from gyral.core.errors import UserError
from gyral.nn.layers import Layer
from tests.helpers.loops import for_each

T, B, X, N = 4, 3, 5, 8
LAYERS = {
    "rum": gyral.RUM,
    "rum lambda 1": partial(gyral.RUM, lambd=1),
    "rum all options": partial(gyral.RUM, lambd=1, eta=1.0, layer_norm=True, activation="tanh"),
    "gru": gyral.GRU,
    "gru layer norm": partial(gyral.GRU, layer_norm=True),
    "lstm": gyral.LSTM,
    "lstm layer norm": partial(gyral.LSTM, layer_norm=True),
    "rnn": gyral.RNN,
    "goru": gyral.GORU,
    "eurnn": gyral.EURNN,
    "eurnn real": partial(gyral.EURNN, is_complex=False),
    "urnn": gyral.URNN,
    "full urnn": gyral.FullURNN,
    "fast weights": gyral.FastWeights,
    "weinet": gyral.WeiNet,
    "on-lstm": partial(gyral.ONLSTM, chunk_size=2),
    "fs lstm": partial(gyral.FSRNN, fast=partial(gyral.LSTMCell, layer_norm=True), slow=gyral.LSTMCell),
    "fs rum": partial(gyral.FSRNN, fast=gyral.LSTMCell, slow=gyral.RUMCell),
}
# torch has no complex numbers of half precision
COMPLEX = ("eurnn", "urnn", "full urnn")
HALF = (torch.bfloat16, torch.float16)
SEED = 2  # of inputs for which no unit of modReLU is near its jump at zero
# how often the unit roundoff the errors of these few steps may be
VALUES, GRADIENTS = 20, 100


def build(name: str, backend: str, dtype: torch.dtype) -> Layer:
    """Return the layer, with the same weights for all backends and dtypes: numbers of bfloat16."""
    torch.manual_seed(0)
    layer = LAYERS[name](X, N, backend=backend)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(parameter.bfloat16())
    return layer.to(dtype)


def outputs_and_gradients(layer: Layer, inputs: Tensor, autocast: torch.dtype | None) -> tuple[Tensor, list[Tensor]]:
    """Take one step of training; return its outputs and the gradients of inputs and parameters."""
    before = [parameter.detach().clone() for parameter in layer.parameters()]
    inputs = inputs.clone().requires_grad_()
    with nullcontext() if autocast is None else torch.autocast("cpu", autocast):
        outputs, state = layer(inputs)
    like = layer.init_state(inputs.shape[1])
    assert all(leaf.dtype == one.dtype for leaf, one in zip(tree_leaves(state), tree_leaves(like), strict=True))
    cotangent = torch.linspace(-1, 1, outputs.numel(), dtype=torch.float64).view_as(outputs)
    loss = (outputs.double() * cotangent).sum()
    loss.backward()
    assert loss.isfinite()
    optimizer = torch.optim.SGD(layer.parameters(), lr=100.0)  # more than a rounding of every parameter
    found = [tensor.grad for tensor in (inputs, *layer.parameters())]
    optimizer.step()
    for (parameter_name, parameter), old in zip(layer.named_parameters(), before, strict=True):
        assert not torch.equal(parameter, old), f"{parameter_name} has not changed"
    return outputs.detach(), [gradient for gradient in found if gradient is not None]


@cache
def truth(name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, and the outputs and all gradients of the reference in float64."""
    torch.manual_seed(SEED)
    inputs = torch.randn(T, B, X).bfloat16().double()
    outputs, gradients = outputs_and_gradients(build(name, "reference", torch.float64), inputs, None)
    return inputs, outputs, flat(gradients)


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.double().flatten() for tensor in tensors])


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


def check(name: str, backend: str, dtype: torch.dtype, autocast: torch.dtype | None) -> None:
    """Compare values and gradients with those of the reference in float64."""
    inputs, expected, expected_gradients = truth(name)
    outputs, gradients = outputs_and_gradients(build(name, backend, dtype), inputs.to(dtype), autocast)
    roundoff = torch.finfo(autocast or dtype).eps / 2
    assert error(outputs, expected) <= VALUES * roundoff
    assert error(flat(gradients), expected_gradients) <= GRADIENTS * roundoff

    layer = build(name, backend, dtype).eval()
    with torch.no_grad(), nullcontext() if autocast is None else torch.autocast("cpu", autocast):
        evaluated, _ = layer(inputs.to(dtype))
    assert error(evaluated, expected) <= VALUES * roundoff


def refusal(name: str, backend: str, dtype: torch.dtype) -> str | None:
    """Return the error of a layer that does not support a dtype, or None if it does."""
    try:
        build(name, backend, dtype)(torch.randn(T, B, X).to(dtype))
    except UserError as refused:
        (line,) = str(refused).splitlines()
        return line
    return None


@pytest.mark.parametrize("backend", ["auto", pytest.param("reference", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LAYERS)
def test_pure(name: str, backend: str) -> None:
    for dtype in (torch.float32, *HALF):
        if name in COMPLEX and dtype in HALF:
            message = refusal(name, backend, dtype)
            assert message is not None
            assert f"supports the dtypes float32 and float64, not {str(dtype).removeprefix('torch.')}" in message
        else:
            check(name, backend, dtype, None)


@pytest.mark.parametrize("backend", ["auto", pytest.param("reference", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LAYERS)
def test_autocast(name: str, backend: str) -> None:
    for autocast in HALF:
        check(name, backend, torch.float32, autocast)


@for_each("name", LAYERS)
def test_fused_trains_in_half_precision_or_refuses_in_one_line(name: str) -> None:
    for dtype in HALF:
        message = refusal(name, "fused", dtype)
        if message is None:
            check(name, "fused", dtype, None)
        else:
            assert message.startswith("backend=fused: ")
