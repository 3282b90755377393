"""LSTM, GRU and RNN are torch.nn's: same weights, same outputs, final states and gradients."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from src.cells.base import LayerCell
from src.cells.gru import GRUCell
from src.cells.lstm import LSTMCell
from src.cells.rnn import RNNCell
from src.checks import OptionError
from src.models.recurrent import Recurrent

X, N, BATCH, STEPS = 5, 7, 4, 9
TOLERANCE = 1e-6


class Twin(NamedTuple):
    """A cell, torch's layer and torch's one-step module of the same formula."""

    cell: type[LayerCell]
    layer: Callable[..., nn.RNNBase]
    single: Callable[..., nn.RNNCellBase]
    options: dict[str, Any]

    def __str__(self) -> str:
        return " ".join([self.cell.__name__, *(f"{name}={value}" for name, value in self.options.items())])


TWINS = [
    Twin(cell, layer, single, {**extra, "bias": bias})
    for cell, layer, single, extra in (
        (LSTMCell, nn.LSTM, nn.LSTMCell, {}),
        (GRUCell, nn.GRU, nn.GRUCell, {}),
        (RNNCell, nn.RNN, nn.RNNCell, {"nonlinearity": "tanh"}),
        (RNNCell, nn.RNN, nn.RNNCell, {"nonlinearity": "relu"}),
    )
    for bias in (True, False)
]
every_twin = pytest.mark.parametrize("twin", TWINS, ids=str)


def random_state(cell: LayerCell) -> Any:
    state = cell.init_state(BATCH)
    return type(state)(*(0.5 * torch.randn_like(leaf) for leaf in state))


def for_torch(state: Any) -> Any:
    """Return a state as torch's layers take it: (1, B, N), a pair only for two leaves."""
    leaves = tuple(leaf.unsqueeze(0) for leaf in state)
    return leaves if len(leaves) > 1 else leaves[0]


def close(actual: Tensor, expected: Tensor, what: str = "") -> None:
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * scale, msg=lambda m: f"{what}: {m}")


@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize("with_state", [True, False], ids=["state", "zeros"])
@every_twin
def test_sequences_agree_with_torch(twin: Twin, with_state: bool, backend: str) -> None:
    layer = twin.layer(X, N, **twin.options)
    model = Recurrent(lambda size: twin.cell(size, N, **twin.options), X, backend=backend)
    cell = model.cells[0]
    cell.layer.load_state_dict(layer.state_dict())
    inputs = torch.randn(STEPS, BATCH, X)
    state = random_state(cell) if with_state else cell.init_state(BATCH)

    own_inputs, own_leaves = inputs.clone().requires_grad_(), [leaf.clone().requires_grad_() for leaf in state]
    outputs, (final,) = model(own_inputs, (type(state)(*own_leaves),) if with_state else None)
    torch_inputs, torch_leaves = inputs.clone().requires_grad_(), [leaf.clone().requires_grad_() for leaf in state]
    expected, last = layer(torch_inputs, for_torch(torch_leaves) if with_state else None)
    last = tuple(leaf.squeeze(0) for leaf in (last if isinstance(last, tuple) else (last,)))

    close(outputs, expected, "outputs")
    for name, leaf, other in zip(final._fields, final, last, strict=True):
        close(leaf, other, name)

    cotangents = [torch.randn_like(outputs), *(torch.randn_like(leaf) for leaf in last)]
    torch.autograd.backward([outputs, *final], cotangents)
    torch.autograd.backward([expected, *last], cotangents)
    close(own_inputs.grad, torch_inputs.grad, "gradient of the inputs")
    if with_state:
        for leaf, other in zip(own_leaves, torch_leaves, strict=True):
            close(leaf.grad, other.grad, "gradient of the initial state")
    own, others = dict(cell.layer.named_parameters()), dict(layer.named_parameters())
    assert own.keys() == others.keys()
    for name, parameter in own.items():
        close(parameter.grad, others[name].grad, f"gradient of {name}")


@every_twin
def test_steps_agree_with_torch(twin: Twin) -> None:
    cell = twin.cell(X, N, **twin.options)
    single = twin.single(X, N, **twin.options)
    single.load_state_dict({name.removesuffix("_l0"): tensor for name, tensor in cell.layer.state_dict().items()})
    state = random_state(cell)
    hidden = tuple(state) if len(state) > 1 else state[0]
    with torch.no_grad():
        for inputs in torch.randn(STEPS, BATCH, X):
            output, state = cell(inputs, state)
            hidden = single(inputs, hidden)
            leaves = hidden if isinstance(hidden, tuple) else (hidden,)
            close(output, leaves[0])
            for leaf, other in zip(state, leaves, strict=True):
                close(leaf, other)
        inputs = torch.randn(BATCH, X)
        from_zero = single(inputs)
        close(cell(inputs)[0], from_zero[0] if isinstance(from_zero, tuple) else from_zero)


@every_twin
def test_initialization_is_torchs(twin: Twin) -> None:
    torch.manual_seed(4)
    cell = twin.cell(X, N, **twin.options)
    torch.manual_seed(4)
    layer = twin.layer(X, N, **twin.options)
    for name, tensor in layer.state_dict().items():
        assert torch.equal(cell.layer.state_dict()[name], tensor)
    assert all(parameter.abs().max() <= N**-0.5 for parameter in cell.parameters())


@pytest.mark.parametrize("cell", [LSTMCell, GRUCell, RNNCell])
@pytest.mark.parametrize(
    ("name", "value"),
    [("input_size", 0), ("input_size", 2.0), ("hidden_size", 0), ("hidden_size", "7"), ("bias", 1), ("bias", "no")],
)
def test_bad_options_are_refused_in_one_line(cell: type[LayerCell], name: str, value: Any) -> None:
    with pytest.raises(OptionError) as caught:
        cell(**{"input_size": X, "hidden_size": N, name: value})
    assert str(caught.value).startswith(f"{name}={value}: ")
    assert "\n" not in str(caught.value)


def test_unknown_nonlinearity_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^nonlinearity=sine: must be one of tanh, relu$"):
        RNNCell(X, N, nonlinearity="sine")
