"""Depthwise convolution over time, with weights that the channels of a head share.

    y_{t,c} = Σ_{j=0}^{K−1} w_{h(c),j} v_{t−back+j, c}                       constant weights (H, K)
    y_{t,c} = Σ_j w_{t,h(c),j} v_{t−back+j, c},  w_t = mask_t ⊙ softmax(s_t)    scores of each step (T, B, H, K)

h(c) is the head of a channel. With back = K − 1 no output depends on later values. Light and dynamic convolutions are
from Wu, Fan, Baevski, Dauphin and Auli, "Pay less attention with lightweight and dynamic convolutions", ICLR 2019.
"""

import torch
from torch import Tensor

from gyral.ops.convolution import naive
from gyral.ops.convolution.naive import head_of_channel
from gyral.ops.operator import Operator, check_dtypes
from gyral.ops.sequences import is_finite, reachable_since

__all__ = ["convolution", "has_kernel", "head_of_channel", "unsupported_reason", "window"]

OPERATOR = Operator(naive.convolution, {"cpu": "gyral.ops.convolution.cpu"})
has_kernel, unsupported_reason = OPERATOR.has_kernel, OPERATOR.unsupported_reason


def convolution(
    values: Tensor,
    weights: Tensor,
    history: Tensor | None = None,
    *,
    back: int | None = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    softmax: bool = True,
) -> Tensor:
    """Run the convolution over values (T, B, N): by kernels where there are some, else in plain torch.

    T steps, B batch size, N channels, H heads, K weights of a head.

    Args:
        values: (T, B, N).
        weights: Constant weights (H, K), or the scores (T, B, H, K) of the weights of each step; H ≤ N.
        history: (B, P, N), the values before the first step, the latest last, or None stands for zeros.
        back: Number of steps from the first value in a window back to the step of the output, in [0, K − 1]; None:
            K − 1, so that no output depends on later values.
        mask: (T, B, H, K), factors of the weights of each step, without gradient; or None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: earlier values count as zeros.
        softmax: Whether the weights of each step are the softmax of their scores; False: the scores themselves.

    Returns:
        (T, B, N), zero beyond the lengths.

    Raises:
        TypeError: The arguments have several dtypes.
    """
    check_dtypes(weights.dtype, values, history, mask)
    kernel = weights.shape[-1]
    # the kernels multiply the values before a start by zero
    fused = has_kernel(values) and (starts is None or is_finite(values, history))
    run = OPERATOR if fused else naive.convolution
    arguments = values, weights, history, mask, lengths, reachable_since(starts, kernel)
    outputs = run(*arguments, kernel - 1 if back is None else back, softmax)
    return outputs[0] if isinstance(outputs, list) else outputs


def window(values: Tensor, history: Tensor, lengths: Tensor | None, starts: Tensor | None) -> Tensor:
    """Return the last P values (B, P, N) of each row, the latest last; zeros before its last start.

    Args:
        values: (T, B, N).
        history: (B, P, N), the values before the first step.
        lengths, starts: See `convolution`.
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
