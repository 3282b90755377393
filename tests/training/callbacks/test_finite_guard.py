"""The first non-finite tensor is named, and stops the run."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gyral.data.batching import Batch
from gyral.training.callbacks.finite_guard import FiniteGuard, NonFiniteError, first_non_finite
from tests.helpers.running import build_task
from tests.training.callbacks.conftest import TINY


def test_all_finite_names_nothing(task: Any, batch: Batch) -> None:
    task.loss(task(batch), batch).backward()
    assert first_non_finite(task, batch).startswith("not found")


@pytest.mark.parametrize("name", ["model.recurrent.cells.0.layer.weight_hh_l0", "model.head.weight"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_poisoned_parameter_is_named(task: Any, batch: Batch, name: str, value: float) -> None:
    task.get_parameter(name).data[1, 2] = value
    assert first_non_finite(task, batch) == f"parameter {name}"


@pytest.mark.parametrize("poisoned", ["model.recurrent", "model.head"])
def test_a_poisoned_layer_is_named(task: Any, batch: Batch, poisoned: str) -> None:
    def poison(module: Any, arguments: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return output[0] * float("nan"), *output[1:]
        return output * float("nan")

    handle = task.get_submodule(poisoned).register_forward_hook(poison)
    assert first_non_finite(task, batch) == f"output of {poisoned}"
    handle.remove()
    assert first_non_finite(task, batch).startswith("not found")


@pytest.mark.parametrize("model", [pytest.param("fs_lstm", marks=pytest.mark.slow), "lantm"])
def test_a_poisoned_layer_is_named_if_a_cell_contains_cells(batch: Batch, model: str) -> None:
    task = build_task(f"model={model}", "task=recall", "model.cell.hidden_size=4", **TINY)
    task.model.head.register_forward_hook(lambda module, arguments, output: output * float("nan"))
    assert first_non_finite(task, batch) == "output of model.head"


def test_a_loss_that_is_not_finite_is_named(task: Any, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "loss", lambda logits, _: logits.sum() * float("inf"))
    assert first_non_finite(task, batch) == "the loss"


def test_the_gradient_nearest_to_the_loss_is_named(task: Any, batch: Batch) -> None:
    task.loss(task(batch), batch).backward()
    for name in ("model.recurrent.cells.0.layer.weight_ih_l0", "model.recurrent.cells.0.layer.weight_hh_l0"):
        task.get_parameter(name).grad[0, 0] = float("nan")
    named = first_non_finite(task, batch)
    assert named == "gradient of model.recurrent.cells.0.layer.weight_hh_l0"
    task.model.head.weight.grad[0, 0] = float("inf")
    assert first_non_finite(task, batch) == "gradient of model.head.weight"
    task.model.head.weight.grad[0, 0] = 1e30  # its square is infinite
    assert first_non_finite(task, batch) == "norm of the gradient of model.head.weight"


def test_the_search_for_the_tensor_changes_nothing(task: Any, batch: Batch) -> None:
    task.loss(task(batch), batch).backward()
    before = [(p.clone(), p.grad.clone()) for p in task.parameters()]
    first_non_finite(task, batch)
    assert all(
        torch.equal(p, old) and torch.equal(p.grad, g) for p, (old, g) in zip(task.parameters(), before, strict=True)
    )
    assert not any(module._forward_hooks for module in task.modules())


def guarded(task: Any, batch: Batch, every: int, step: int, spoil: bool) -> None:
    """Take the guarded part of a training step."""
    guard = FiniteGuard(every)
    trainer = SimpleNamespace(global_step=step)
    guard.on_train_batch_start(trainer, task, batch, 0)
    loss = task.loss(task(batch), batch)
    guard.on_before_backward(trainer, task, loss)
    loss.backward()
    if spoil:
        task.model.head.weight.grad[0, 0] = float("inf")
    guard.on_before_optimizer_step(trainer, task, torch.optim.SGD(task.parameters()))


def test_the_guard_stops_and_names_the_step(task: Any, batch: Batch) -> None:
    guarded(task, batch, every=1, step=7, spoil=False)
    with pytest.raises(NonFiniteError, match=r"^step 8: .* inf; first non-finite: gradient of model\.head\.weight$"):
        guarded(task, batch, every=1, step=7, spoil=True)
    guarded(task, batch, every=5, step=7, spoil=True)
    with pytest.raises(NonFiniteError):
        guarded(task, batch, every=5, step=10, spoil=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_the_guard_stops_at_a_loss_whose_gradients_are_finite(
    task: Any, batch: Batch, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = task.loss
    monkeypatch.setattr(task, "loss", lambda logits, batch: loss(logits, batch) + value)
    with pytest.raises(NonFiniteError, match=rf"^step 8: the loss is {value:g} .* first non-finite: the loss$"):
        guarded(task, batch, every=1, step=7, spoil=False)
