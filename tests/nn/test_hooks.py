"""Layers support parametrizations of the weights of their cells, and refuse hooks of cells in one line."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

from gyral.cells.base import RecurrentCell
from gyral.cells.fs_rnn import FSRNNCell
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


@every_run
@every_cell
@for_each("kind", ["spectral_norm", "weight_norm", "orthogonal"])
def test_a_parametrized_weight_is_the_one_that_the_layer_reads_in_training(kind: str, name: str, backend: str) -> None:
    model = Recurrent(CELLS[name], X, backend=backend).double()
    weight = holder(model.cells[0])
    getattr(parametrizations, kind)(*weight)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    for _ in range(2):
        outputs, _ = model.train()(inputs)
        optimizer.zero_grad()
        outputs.square().sum().backward()
        optimizer.step()
    model.eval()
    plain = Recurrent(CELLS[name], X, backend="reference").double()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "parametrizations" not in k}, strict=False)
    with torch.no_grad():
        getattr(*holder(plain.cells[0])).copy_(getattr(*weight))
        torch.testing.assert_close(model(inputs)[0], plain(inputs)[0])


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


REPLACED: dict[str, tuple[Callable[..., Any], str]] = {
    "spectral_norm": (spectral_norm, r"torch\.nn\.utils\.parametrizations\.spectral_norm"),
    "weight_norm": (weight_norm, r"torch\.nn\.utils\.parametrizations\.weight_norm"),
    "prune": (
        partial(prune.l1_unstructured, amount=0.5),
        r"torch\.nn\.utils\.parametrize\.register_parametrization with a module that multiplies by the mask",
    ),
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@every_run
@every_cell
@for_each("kind", REPLACED)
def test_weights_that_a_hook_computes_are_refused_with_their_replacement(kind: str, name: str, backend: str) -> None:
    model = Recurrent(CELLS[name], X, backend=backend)
    apply, replacement = REPLACED[kind]
    apply(*holder(model.cells[0]))
    message = rf"^{type(model.cells[0]).__name__}: layers do not support {kind} of torch\.nn\.utils; use {replacement}$"
    with pytest.raises(UserError, match=message):
        model(torch.randn(STEPS, BATCH, X))


REGISTER = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
)


@every_run
@for_each("register", REGISTER)
def test_hooks_of_cells_are_refused_and_those_of_the_network_called(register: str, backend: str) -> None:
    model = Recurrent(CELLS["rum"], X, backend=backend)
    inputs = torch.randn(STEPS, BATCH, X, requires_grad=True)
    handle = getattr(model.cells[0], register)(lambda *_: None)
    with pytest.raises(UserError, match=r"^RUMCell: a layer calls no hooks of its cells; register them on the layer$"):
        model(inputs)
    handle.remove()
    called: list[Any] = []
    getattr(model, register)(lambda *arguments: called.append(arguments))
    model(inputs)[0].sum().backward()
    assert len(called) == 1


def test_hooks_of_modules_within_a_cell_are_refused() -> None:
    model = Recurrent(partial(FSRNNCell, hidden_size=N, fast=LSTMCell, slow=LSTMCell), X)
    handle = model.cells[0].slow.register_forward_hook(lambda *_: None)
    inputs = torch.randn(STEPS, BATCH, X)
    with pytest.raises(UserError, match=r"^LSTMCell within FSRNNCell: a layer calls no hooks of its cells; register"):
        model(inputs)
    handle.remove()
    model(inputs)


def test_hooks_of_a_cell_that_is_called_itself_work_as_in_torch() -> None:
    cell = RUMCell(X, N)
    seen: list[Any] = []
    cell.register_forward_hook(lambda _, given, result: seen.append(result[0].shape))
    cell(torch.randn(BATCH, X))
    assert seen == [(BATCH, N)]
