"""Hooks of cells are called once per sequence, and weights that hooks of torch.nn.utils compute are up to date."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from gyral.cells.base import RecurrentCell
from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rum import RUMCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent

X, N, BATCH, STEPS = 3, 4, 2, 5
CELLS: dict[str, Callable[[int], RecurrentCell]] = {
    "rum": partial(RUMCell, hidden_size=N),
    "gru": partial(GRUCell, hidden_size=N),
}
every_run = pytest.mark.parametrize("backend", ["reference", "fused"])
every_cell = pytest.mark.parametrize("name", CELLS)


def holder(cell: RecurrentCell) -> tuple[nn.Module, str]:
    """Return the module that holds the recurrent weight, and the weight's name."""
    return (cell.layer, "weight_hh_l0") if isinstance(cell, GRUCell) else (cell, "weight_hh")


@every_run
@every_cell
def test_hooks_of_a_cell_see_a_sequence_and_may_replace_it(name: str, backend: str) -> None:
    model = Recurrent(CELLS[name], X, backend=backend)
    (cell,) = model.cells
    inputs = torch.randn(STEPS, BATCH, X, requires_grad=True)
    expected, _ = model(inputs)
    seen: list[Any] = []
    handles = [
        cell.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape)),
        cell.register_forward_hook(lambda _, given, result: seen.append(result[0].shape)),
        cell.register_full_backward_hook(lambda _, of_inputs, of_outputs: seen.append(of_inputs[0].shape)),
        cell.register_full_backward_pre_hook(lambda _, of_outputs: seen.append(of_outputs[0].shape)),
    ]
    outputs, _ = model(inputs)
    outputs.sum().backward()
    shapes = (STEPS, BATCH, X), (STEPS, BATCH, N)
    assert seen == [shapes[0], shapes[1], shapes[1], shapes[0]]
    assert torch.equal(outputs, expected)
    for handle in handles:
        handle.remove()
    cell.register_forward_pre_hook(lambda _, given: (2 * given[0], *given[1:]))
    cell.register_forward_hook(lambda _, given, result: (result[0] + 1, result[1]))
    changed, _ = model(inputs)
    cell._forward_hooks.clear()
    cell._forward_pre_hooks.clear()
    torch.testing.assert_close(changed, model(2 * inputs)[0] + 1)


LEGACY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "spectral_norm": (partial(spectral_norm, n_power_iterations=30), parametrizations.spectral_norm),
    "weight_norm": (weight_norm, parametrizations.weight_norm),
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@every_run
@every_cell
@pytest.mark.parametrize("kind", LEGACY)
def test_legacy_norms_of_weights_equal_the_parametrizations(kind: str, name: str, backend: str) -> None:
    models = [Recurrent(CELLS[name], X, backend=backend).double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    legacy, parametrization = LEGACY[kind]
    legacy(*holder(models[0].cells[0]))
    options = {"n_power_iterations": 30} if kind == "spectral_norm" else {}
    parametrization(*holder(models[1].cells[0]), **options)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    for _ in range(3):
        outputs = [model(inputs)[0] for model in models]
        torch.testing.assert_close(*outputs)
        for output, optimizer in zip(outputs, optimizers, strict=True):
            optimizer.zero_grad()
            output.square().sum().backward()
            optimizer.step()


@every_run
@every_cell
def test_pruned_weights_stay_zero_in_training(name: str, backend: str) -> None:
    model = Recurrent(CELLS[name], X, backend=backend)
    module, weight = holder(model.cells[0])
    prune.l1_unstructured(module, weight, amount=0.5)
    original = getattr(module, f"{weight}_orig")
    mask = getattr(module, f"{weight}_mask")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        before = original.clone()
        optimizer.zero_grad()
        outputs, _ = model(torch.randn(STEPS, BATCH, X))
        assert torch.equal(getattr(module, weight), original * mask)
        outputs.square().sum().backward()
        optimizer.step()
        changed = original != before
        assert changed.any()
        assert not changed[mask == 0].any()


def test_hooks_that_nothing_would_call_are_refused() -> None:
    model = Recurrent(partial(FSRNNCell, hidden_size=N, fast=LSTMCell, slow=LSTMCell), X)
    handle = model.cells[0].slow.register_forward_hook(lambda *_: None)
    inputs = torch.randn(STEPS, BATCH, X)
    message = r"^hooks of LSTMCell within FSRNNCell are never called; register them on the FSRNNCell$"
    with pytest.raises(RuntimeError, match=message):
        model(inputs)
    handle.remove()
    model(inputs)


def test_a_graph_refuses_weights_that_hooks_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = Recurrent(CELLS["rum"], X, backend="graph")
    prune.l1_unstructured(model.cells[0], "weight_hh", amount=0.5)
    with pytest.raises(OptionError, match=r"^backend=graph: does not support prune, spectral_norm and weight_norm"):
        model(torch.randn(STEPS, BATCH, X))
