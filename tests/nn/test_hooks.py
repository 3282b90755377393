"""Layers call the hooks of their cells once for a sequence, and support what computes the weights of their cells."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

import gyral
from gyral.cells.base import RecurrentCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rum import RUMCell
from gyral.core.errors import UserError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

X, N, BATCH, STEPS = 3, 4, 2, 5
CELLS: dict[str, Callable[[int], RecurrentCell]] = {
    "rum": partial(RUMCell, hidden_size=N),
    "gru": partial(GRUCell, hidden_size=N),
}
every_run = for_each("backend", ["reference", "fused"])
every_cell = for_each("name", CELLS)


def holder(cell: Any) -> tuple[nn.Module, str]:
    """Return the module that holds the recurrent weight, and the weight's name."""
    return (cell.layer, "weight_hh_l0") if isinstance(cell, GRUCell) else (cell, "weight_hh")


class Mask(nn.Module):
    """Keeps entries of a weight at zero, in the place of `torch.nn.utils.prune`."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask


KINDS: dict[str, Callable[..., Any]] = {
    "spectral_norm": parametrizations.spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "orthogonal": parametrizations.orthogonal,
    # these compute the weight in a hook
    "spectral_norm of torch.nn.utils": spectral_norm,
    "weight_norm of torch.nn.utils": weight_norm,
    "prune of torch.nn.utils": partial(prune.l1_unstructured, amount=0.5),
}
HOOKS = [kind for kind in KINDS if "utils" in kind]


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@every_run
@for_each("name", [*CELLS, "GRU"])
@for_each("kind", KINDS)
def test_a_computed_weight_is_the_one_that_the_layer_reads_in_training(kind: str, name: str, backend: str) -> None:
    def make(backend: str) -> tuple[Any, tuple[nn.Module, str]]:
        if name == "GRU":
            layer = gyral.GRU(X, N, backend=backend, dtype=torch.float64)
            return layer, (layer, "weight_hh_l0")
        network = Recurrent(CELLS[name], X, backend=backend).double()
        return network, holder(network.cells[0])

    model, weight = make(backend)
    KINDS[kind](*weight)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    if name == "gru" and kind in HOOKS:  # of a module that the fused path does not call
        with pytest.raises(UserError, match=rf"^TorchLayer within GRUCell: layers do not support {kind} there; use "):
            model(inputs)
        return
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first = getattr(*weight).detach().clone()
    for _ in range(2):
        outputs, _ = model.train()(inputs)
        optimizer.zero_grad()
        outputs.square().sum().backward()
        optimizer.step()
    model.eval()
    outputs, _ = model(inputs)
    assert not torch.equal(getattr(*weight), first)
    plain, other = make("reference")
    plain.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        getattr(*other).copy_(getattr(*weight))
    torch.testing.assert_close(outputs, plain(inputs)[0])


@every_run
@every_cell
def test_masked_weights_stay_zero_in_training(name: str, backend: str) -> None:
    model = Recurrent(CELLS[name], X, backend=backend)
    module, weight = holder(model.cells[0])
    mask = (torch.rand_like(getattr(module, weight)) < 0.5).float()
    parametrize.register_parametrization(module, weight, Mask(mask))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        before = getattr(module, weight).detach().clone()
        optimizer.zero_grad()
        outputs, _ = model(torch.randn(STEPS, BATCH, X))
        outputs.square().sum().backward()
        optimizer.step()
        changed = getattr(module, weight) != before
        assert changed.any()
        assert not changed[mask == 0].any()


@every_run
def test_hooks_of_cells_are_called_once_for_a_sequence(backend: str) -> None:
    layer = gyral.RUM(X, N, bidirectional=True, backend=backend)
    inputs = torch.randn(STEPS, BATCH, X, requires_grad=True)
    lengths = torch.tensor([STEPS, 2])
    plain = layer(inputs, lengths=lengths)[0]
    called: list[tuple[str, Any]] = []
    forward, backward = layer.cells
    assert isinstance(forward, RUMCell)

    def note(name: str, tensors: Any) -> None:
        called.append((name, tuple(tensors[0].shape)))

    handles = [
        forward.register_forward_pre_hook(lambda _, given: note("before", given)),
        forward.register_forward_hook(lambda _, given, result: note("after", result)),
        forward.register_full_backward_hook(lambda _, into, of: note("backward", into)),
        layer.register_forward_hook(lambda *_: note("layer", inputs)),
    ]
    outputs, _ = layer(inputs, lengths=lengths)
    assert torch.equal(outputs, plain)
    outputs.sum().backward()
    whole = STEPS, BATCH, X
    assert called == [("before", whole), ("after", (*whole[:2], N)), ("layer", (BATCH, X)), ("backward", whole)]
    for handle in handles:
        handle.remove()
    backward.register_forward_hook(lambda _, given, result: (torch.zeros_like(result[0]), result[1]))
    outputs, _ = layer(inputs, lengths=lengths)
    assert torch.equal(outputs[..., :N], plain[..., :N])
    assert not outputs[..., N:].any()


class Hooks:
    """Stands for the class of opacus that registers its methods."""

    __module__ = "opacus.grad_sample.grad_sample_module"

    def capture_activations(self, *_: Any) -> None:
        """Keep the inputs of a module."""


@every_run
def test_hooks_within_cells_are_ignored_unless_gradients_or_weights_depend_on_them(backend: str) -> None:
    layer = gyral.FSRNN(X, N, fast=LSTMCell, slow=LSTMCell, backend=backend)
    slow, inputs = layer.cells[0].slow, torch.randn(STEPS, BATCH, X)
    handle = slow.register_forward_hook(lambda *_: None)
    expected = layer(inputs)[0]
    handle.remove()
    handle = slow.register_forward_hook(Hooks().capture_activations)
    with pytest.raises(UserError, match=r"^FSRNN: layers do not support opacus, .*; use torch\.func\.vmap of "):
        layer(inputs)
    handle.remove()
    assert torch.equal(layer(inputs)[0], expected)
    prune.l1_unstructured(slow.layer, "weight_hh_l0", 0.5)
    with pytest.raises(UserError, match=r"^TorchLayer within FSRNNCell: layers do not support prune of "):
        layer(inputs)


def test_hooks_of_a_cell_that_is_called_itself_work_as_in_torch() -> None:
    cell = RUMCell(X, N)
    seen: list[Any] = []
    cell.register_forward_hook(lambda _, given, result: seen.append(result[0].shape))
    cell(torch.randn(BATCH, X))
    assert seen == [(BATCH, N)]
