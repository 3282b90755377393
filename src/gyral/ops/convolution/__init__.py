"""Depthwise convolution over time, with weights that the channels of a head share.

    y_{t,c} = Σ_{j=0}^{K−1} w_{h(c),j} v_{t−back+j, c}                       constant weights (H, K)
    y_{t,c} = Σ_j w_{t,h(c),j} v_{t−back+j, c},  w_t = mask_t ⊙ softmax(s_t)    scores of each step (T, B, H, K)

h(c) is the head of a channel. With back = K − 1 no output depends on later values. Light and dynamic convolutions are
from Wu, Fan, Baevski, Dauphin and Auli, "Pay less attention with lightweight and dynamic convolutions", ICLR 2019.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.errors import InputError
from gyral.ops.convolution import naive
from gyral.ops.convolution.naive import head_of_channel
from gyral.ops.declaration import check_shape
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator
from gyral.ops.sequences import is_finite, reachable_since

__all__ = ["convolution", "head_of_channel", "unsupported_reason", "window"]


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, channels = check_shape("values", a.values, *a.values.shape[:2], "N")
    leading = () if a.weights.dim() == 2 else (steps, batch)
    *_, heads, kernel = check_shape("weights", a.weights, *leading, "H", "K")
    if heads > channels:
        raise InputError(f"weights have {heads} heads, must have at most {channels}, the channels of values")
    if a.history is not None:  # it may be empty
        check_shape("history", a.history, batch, a.history.shape[1] if a.history.dim() == 3 else "P", channels)
    if a.mask is not None and not leading:
        raise InputError("mask must be None for constant weights")
    check_shape("mask", a.mask, steps, batch, heads, kernel)
    if a.back is not None:
        check_integer("back", a.back, minimum=0, maximum=kernel - 1)


def sizes(a: Any) -> dict[str, Any]:
    """Return the numbers that the kernel takes, and its tensors that are not arguments."""
    steps, batch, channels = a.values.shape
    heads, kernel = a.weights.shape[-2:]
    return {
        "steps": steps,
        "batch": batch,
        "channels": channels,
        "heads": heads,
        "kernel": kernel,
        "back": kernel - 1 if a.back is None else a.back,
        "past": 0 if a.history is None else a.history.shape[1],
        "weights": a.weights if a.weights.dim() == 2 else None,
        "scores": a.weights if a.weights.dim() == 4 else None,
        "since": reachable_since(a.starts, kernel),
    }


class ConvolutionKernels(Kernels):
    """The kernels. They sum the gradients of constant weights by channel or by head."""

    def backward(self, a: Any, results: list[Any], kept: list[Any], gradients: Any, needs: dict[str, bool]) -> Any:
        """Return the gradients; see `gyral.ops.operator.Operator`."""
        found = super().backward(a, results, kept, gradients, needs)
        if by_channel(a):
            index = head_of_channel(a.values.shape[2], len(a.weights), a.values.device)
            found["weights"] = torch.zeros_like(a.weights).index_add_(0, index, found["weights"].T)
        return found


def by_channel(a: Any) -> bool:
    """Return whether the kernel sums the gradients of the weights by channel, and not by head."""
    return a.weights.dim() == 2 and a.starts is None


def weight_gradient(a: Any) -> Tensor:
    """Return where the kernel writes the gradient of the weights; of constant ones, a partial sum for each block.

    So the order of summation does not depend on the number of threads.
    """
    if a.weights.dim() == 4:
        return torch.empty_like(a.weights)
    heads, kernel = a.weights.shape
    shape = (kernel, a.values.shape[2]) if by_channel(a) else (heads, kernel)
    return a.weights.new_zeros(KERNELS.kernel.blocks(a.values.shape[1]), *shape)


def supports(a: Any) -> bool:
    """Return whether the kernels support the arguments: those of a CPU multiply the values before a start by zero."""
    return a.starts is None or a.values.device.type != "cpu" or is_finite(a.values, a.history)


KERNELS = ConvolutionKernels(
    Path(__file__).with_name("convolution.cpp"),
    sizes=sizes,
    results={"outputs": like("values")},
    gradients={"values": like("values"), "history": like("history"), "weights": weight_gradient},
)
convolution = Operator(
    naive.convolution,
    {"cpu": KERNELS, "cuda": "gyral.ops.convolution.triton"},
    supports=supports,
    shapes=shapes,
)
unsupported_reason = convolution.unsupported_reason


def window(values: Tensor, history: Tensor, lengths: Tensor | None, starts: Tensor | None) -> Tensor:
    """Return the last P values (B, P, N) of each row, the latest last; zeros before its last start.

    Args:
        values: (T, B, N).
        history: (B, P, N), the values before the first step.
        lengths, starts: See `gyral.ops.convolution.naive.convolution`.
    """
    steps, batch, _ = values.shape
    past = history.shape[1]
    if past == 0:
        return history
    if lengths is None and starts is None and isinstance(steps, int):
        recent = values[max(0, steps - past) :].transpose(0, 1)
        return recent if steps >= past else torch.cat((history[:, steps:], recent), dim=1)
    if lengths is None:
        lengths = torch.full((batch,), steps, device=values.device)
    time = lengths.unsqueeze(1) + torch.arange(-past, 0, device=values.device)  # (B, P)
    row = torch.arange(batch, device=values.device).unsqueeze(1)
    found = torch.where(
        (time >= 0).unsqueeze(2), values[time.clamp(min=0), row], history[row, (time + past).clamp(max=past - 1)]
    )
    since = reachable_since(starts, past)
    if since is None:
        return found
    last = since[lengths - 1, row.squeeze(1)].unsqueeze(1)
    return torch.where((time >= last).unsqueeze(2), found, 0.0)
