"""Stops a run whose loss or gradients are not finite."""

import math
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer

from gyral.core.checks import check_integer
from gyral.data.batching import Batch


class NonFiniteError(ArithmeticError):
    """A loss, gradient or parameter is infinite or not a number."""


class FiniteGuard(Callback):
    """Stops the run before an update with a non-finite loss or gradient, and names the first non-finite tensor.

    Args:
        every: number of steps between two checks of the loss and of the gradients' norms. With 1, every step is
            checked, and each check synchronizes with the GPU.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = check_integer("every", every)
        self._batch: Batch
        self._loss: Tensor

    def on_train_batch_start(self, trainer: Trainer, task: LightningModule, batch: Batch, index: int) -> None:
        self._batch = batch

    def on_before_backward(self, trainer: Trainer, task: LightningModule, loss: Tensor) -> None:
        self._loss = loss.detach()

    def on_before_optimizer_step(self, trainer: Trainer, task: LightningModule, optimizer: Optimizer) -> None:
        if trainer.global_step % self.every:
            return
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        norms = torch._foreach_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        # one number, because a check of each tensor takes many times as long; it may overflow
        numbers = torch.stack((self._loss.float(), *norms))
        if not math.isfinite(numbers.sum().item()) and not numbers.isfinite().all():
            first = first_non_finite(task, self._batch)
            raise NonFiniteError(
                f"step {trainer.global_step + 1}: the loss is {self._loss.item():g} and the largest gradient norm"
                f" {torch.stack(norms).max().item():g}; first non-finite: {first}"
            )


@torch.no_grad()
def first_non_finite(task: LightningModule, batch: Batch) -> str:
    """Return the name of the first non-finite tensor of a training step, in the order of computation."""
    for name, parameter in task.named_parameters():
        if not parameter.isfinite().all():
            return f"parameter {name}"

    found: list[str] = []

    def check_output(name: str, module: nn.Module) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if not found and isinstance(tensor, Tensor) and not tensor.isfinite().all():
                found.append(f"output of {name}")

        return module.register_forward_hook(hook)

    hooks = [check_output(name, module) for name, module in task.named_modules() if name]
    try:
        logits = task(batch)
        loss = task.loss(logits, batch)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return found[0]
    if not loss.isfinite():
        return "the loss"
    # parameters are listed from input to output; the backward pass reaches them in the reverse order
    for name, parameter in reversed(list(task.named_parameters())):
        if parameter.grad is not None and not parameter.grad.norm().isfinite():
            is_finite = parameter.grad.isfinite().all()  # the norm overflows before its elements
            return f"{'norm of the gradient' if is_finite else 'gradient'} of {name}"
    return "not found by a second forward pass, in which dropout or zoneout sampled another mask"
