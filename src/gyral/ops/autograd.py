"""Helpers for the backward passes of all fused paths."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from gyral.core.compat import assume_constant_result

Backward = Callable[..., Any]
NOTHING: AbstractContextManager[Any] = nullcontext()


def outside_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which autocast is off on a device; entering one takes as long as a small product."""
    if has_autocast(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return NOTHING


@assume_constant_result  # the compiler of torch 2.11 cannot trace it
def has_autocast(device: str) -> bool:
    """Return whether torch has autocast on a type of device."""
    return torch.amp.is_autocast_available(device)


def differentiable_by(reference_backward: Backward) -> Callable[[Backward], Backward]:
    """Decorate the `backward` of an autograd function that runs kernels.

    It runs outside autocast, in the dtypes of its forward pass. Kernels have no second derivative: if the gradient
    itself is to be differentiated (`create_graph=True`), `reference_backward(ctx, *gradients)` runs instead of it, with
    `differentiate`.
    """

    def decorate(backward: Backward) -> Backward:
        @wraps(backward)
        def run(ctx: Any, *gradients: Any) -> Any:
            # the engine enables gradients within a backward pass if and only if `create_graph` is True
            chosen = reference_backward if torch.is_grad_enabled() else backward
            device = next((gradient.device.type for gradient in gradients if gradient is not None), None)
            if device is None:  # only where zeros are not materialized
                return (None,) * len(ctx.needs_input_grad)
            if not torch.is_autocast_enabled(device):  # entering a context costs as much as a product
                return chosen(ctx, *gradients)
            with torch.autocast(device, enabled=False):
                return chosen(ctx, *gradients)

        return run

    return decorate


def differentiate(
    reference: Callable[..., Sequence[Tensor | None]],
    tensors: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Return gradients that can be differentiated again.

    Args:
        reference: A function in plain torch of all `tensors`, in order; returns one entry per entry of `gradients`.
            Outputs without gradient may be None.
        tensors: `ctx.saved_tensors`, or some of them.
        gradients: The gradients of the outputs of `reference`, or None.

    Returns:
        The gradient of each of `tensors`, None where none is needed.
    """
    # aliases: one tensor may be given twice, or be computed from another one, and each needs a separate gradient
    aliases = [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]
    outputs = reference(*aliases)
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, gradients, strict=True)
        if output is not None and gradient is not None and output.requires_grad
    ]
    wanted = [alias for alias in aliases if alias is not None and alias.requires_grad]
    if not pairs or not wanted:
        return [None] * len(aliases)
    found = iter(
        torch.autograd.grad(
            [output for output, _ in pairs],
            wanted,
            [gradient for _, gradient in pairs],
            create_graph=True,
            allow_unused=True,
        )
    )
    return [None if alias is None or not alias.requires_grad else next(found) for alias in aliases]
