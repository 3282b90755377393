"""What the backward passes of all fused paths share."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def first_derivative(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Let the `backward` of an autograd function run outside autocast, in the types that its forward pass left.

    Raises:
        RuntimeError: when it is to be differentiated in turn (`create_graph=True`).
    """

    @wraps(backward)
    def run(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("the fused path has no second derivative; backend=reference has")
        device = next(gradient.device.type for gradient in gradients if gradient is not None)
        if not torch.is_autocast_enabled(device):  # the usual case; to enter a context costs as much as a small product
            return backward(ctx, *gradients)
        with torch.autocast(device, enabled=False):
            return backward(ctx, *gradients)

    return run
