"""Depthwise convolution over time, with weights that the channels of a head share.

    y_{t,c} = Σ_{j=0}^{K−1} w_{h(c),j} v_{t−back+j, c}                       constant weights (H, K)
    y_{t,c} = Σ_j w_{t,h(c),j} v_{t−back+j, c},  w_t = mask_t ⊙ softmax(s_t)    scores of each step (T, B, H, K)

h(c) is the head of a channel. With back = K − 1 no output depends on later values. Light and dynamic convolutions are
from Wu, Fan, Baevski, Dauphin and Auli, "Pay less attention with lightweight and dynamic convolutions", ICLR 2019.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gyral.ops import autograd, kernels
from gyral.ops.compiler import is_exporting_to_onnx, is_traced
from gyral.ops.convolution import reference
from gyral.ops.convolution.arguments import MODULES, Arguments, Window
from gyral.ops.sequences import reachable_since


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return kernels.unsupported_reason(MODULES, tensor)


def has_kernel(tensor: Tensor) -> bool:
    """Return whether there are kernels for the device and dtype of a tensor, and no compiler traces this code."""
    return not (is_traced() or is_exporting_to_onnx()) and unsupported_reason(tensor) is None


def run(
    values: Tensor,
    weights: Tensor,
    history: Tensor | None = None,
    *,
    back: int | None = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> Tensor:
    """Run the convolution over values (T, B, N): by kernels where there are some, else in plain torch.

    Args:
        values: (T, B, N).
        weights: Constant weights (H, K), or the scores (T, B, H, K) of the weights of each step; H ≤ N.
        history: (B, P, N), the values before the first step, the latest last, or None stands for zeros.
        back: See `Window`; K − 1 if None.
        mask: (T, B, H, K), factors of the weights of each step, without gradient; or None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: earlier values count as zeros.

    Returns:
        (T, B, N), zero beyond the lengths.

    Raises:
        TypeError: The arguments have several dtypes.
    """
    kernels.check_dtypes(weights.dtype, values, history, mask)
    kernel = weights.shape[-1]
    if lengths is not None:
        lengths = lengths.contiguous()
    window = Window(kernel - 1 if back is None else back, mask, lengths, reachable_since(starts, kernel))
    if not has_kernel(values):
        return reference.run(Arguments(values, weights, history, window))
    with autograd.outside_autocast(values.device):
        outputs: Tensor = _Run.apply(window, values, weights, history)
        return outputs


def window(values: Tensor, history: Tensor, lengths: Tensor | None, starts: Tensor | None) -> Tensor:
    """Return the last P values (B, P, N) of each row, the latest last; zeros before its last start.

    Args:
        values: (T, B, N).
        history: (B, P, N), the values before the first step.
        lengths, starts: See `run`.
    """
    steps, batch, _ = values.shape
    past = history.shape[1]
    if past == 0:
        return history
    if lengths is None and starts is None:
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


def _make_arguments(tensors: Sequence[Any], window: Window) -> Arguments:
    values, weights, history = tensors
    return Arguments(values, weights, history, window)


def _reference_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    def run_reference(*given: Any) -> tuple[Tensor]:
        return (reference.run(_make_arguments(given, ctx.window)),)

    return None, *autograd.differentiate(run_reference, ctx.saved_tensors, [gradient])


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, window: Window, *tensors: Tensor | None) -> Tensor:
        given: Any = [None if tensor is None else tensor.contiguous() for tensor in tensors]
        ctx.save_for_backward(*given)
        ctx.window = window
        outputs: Tensor = kernels.find(MODULES, given[0]).forward(_make_arguments(given, window))
        return outputs

    @staticmethod
    @autograd.differentiable_by(_reference_backward)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        given: Any = ctx.saved_tensors
        found = kernels.find(MODULES, given[0]).backward(_make_arguments(given, ctx.window), gradient)
        return None, *found
