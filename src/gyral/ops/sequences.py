"""Functions of whole sequences that several families of kernels share."""

import torch
from torch import Tensor


def project(inputs: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write W x_t + b for inputs (T, B, X) to `out` (T, B, G), in one product."""
    rows, projected = inputs.flatten(0, 1), out.flatten(0, 1)
    if bias is None:
        torch.mm(rows, weight.T, out=projected)
    else:
        torch.addmm(bias, rows, weight.T, out=projected)


def reachable_since(starts: Tensor | None, past: int) -> Tensor | None:
    """Return the first step (T, B) that each step can read: the last start, or −`past` before the first start.

    Args:
        starts: (T, B) bool, True where the state is reset before the step. None: every step is reachable.
        past: Number of values from before the first step.
    """
    if starts is None:
        return None
    time = torch.arange(len(starts), device=starts.device).unsqueeze(1)
    return torch.where(starts, time, -past).cummax(0).values
