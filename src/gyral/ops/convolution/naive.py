"""The convolutions of `gyral.ops.convolution` in plain torch, one weight of the window after the other.

The kernels compute the same. This code runs where there is no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.sequences import reachable_since


def convolution(
    values: Tensor,
    weights: Tensor,
    history: Tensor | None = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    back: int | None = None,
    softmax: bool = True,
) -> Tensor:
    """Run the convolution over values (T, B, N).

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
    """
    # Values from before the step `since` (T, B) count as zeros; negative steps are in the history.
    steps, _, channels = values.shape
    heads, kernel = weights.shape[-2:]
    since, back = reachable_since(starts, kernel), kernel - 1 if back is None else back
    time = torch.arange(steps, device=values.device).unsqueeze(1)
    ended = None if lengths is None else (time >= lengths).unsqueeze(2)
    if ended is not None:
        values = values.masked_fill(ended, 0.0)
    if weights.dim() == 4 and softmax:
        weights = weights.softmax(dim=-1)
    if mask is not None:
        weights = weights * mask
    padded = F.pad(values, (0, 0, 0, 0, back, kernel - 1 - back))
    if history is not None and back > 0:
        past = F.pad(history, (0, 0, max(0, back - history.shape[1]), 0))[:, -back:]
        padded = torch.cat((past.transpose(0, 1), padded[back:]))
    even = channels % heads == 0
    if even:  # then the weights need no copy for each channel
        padded, weights = padded.unflatten(2, (heads, -1)), weights.unsqueeze(-2)
    else:
        weights = weights.index_select(-2, head_of_channel(channels, heads, values.device))
    total = torch.zeros_like(padded[:steps])
    for place in range(kernel):
        window = padded[place : place + steps]
        if since is not None:
            reached = time - back + place >= since
            window = torch.where(reached.view(*reached.shape, *[1] * (window.dim() - 2)), window, 0.0)
        total = total + weights[..., place] * window
    outputs = total.flatten(2) if even else total
    return outputs if ended is None else outputs.masked_fill(ended, 0.0)


def head_of_channel(channels: int, heads: int, device: torch.device) -> Tensor:
    """Return the head (N,) of each channel: consecutive channels, as many or one more."""
    return torch.arange(channels, device=device) * heads // channels
