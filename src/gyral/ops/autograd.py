"""Shared by the backward passes of all fused paths."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Run the `backward` of an autograd function outside autocast, in the dtypes of its forward pass.

    Raises:
        RuntimeError: The gradient itself is to be differentiated (`create_graph=True`).
    """

    @wraps(backward)
    def run(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("the fused path has no second derivative; use backend=reference")
        device = next(gradient.device.type for gradient in gradients if gradient is not None)
        if not torch.is_autocast_enabled(device):  # the usual case: entering a context costs as much as a small product
            return backward(ctx, *gradients)
        with torch.autocast(device, enabled=False):
            return backward(ctx, *gradients)

    return run
