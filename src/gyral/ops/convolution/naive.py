"""The convolutions of `gyral.ops.convolution` in plain torch, one weight of the window after the other.

The kernels compute the same. This code runs where there is no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def convolution(
    values: Tensor,
    weights: Tensor,
    history: Tensor | None,
    mask: Tensor | None,
    lengths: Tensor | None,
    since: Tensor | None,
    back: int,
    softmax: bool = True,
) -> Tensor:
    """Return the outputs (T, B, N), zero beyond the lengths; see `gyral.ops.convolution.convolution`.

    Values from before the step `since` (T, B) count as zeros; negative steps are in the history.
    """
    steps, _, channels = values.shape
    heads, kernel = weights.shape[-2:]
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
