"""The recurrences of `gyral.ops.fast_weights` in plain torch, step by step; A is built at each step.

The kernels compute the same as `fast_weights`, which provides their second derivatives.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.dropout import zoneout
from gyral.ops.gated.naive import at

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


def fast_weights(
    kind: str,
    x: Tensor,
    w_ih: Tensor,
    b: Tensor,
    w_hh: Tensor,
    norm: Tensor | None,
    h0: Tensor,
    a0: Tensor,
    keep: Tensor | None,
    drop: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    epsilon: float,
    decay: float,
    rate: float,
    inner_steps: int,
    has_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run all steps; see `gyral.ops.fast_weights.fast_weights`. `has_gradient` tells kernels whether to save A."""
    h, a = h0, a0
    outputs = []
    for time, parts in enumerate(F.linear(x, w_ih, b).unbind(0)):
        old_h, old_a = h, a
        if starts is not None:
            begins = starts[time].unsqueeze(1)
            old_h, old_a = old_h.masked_fill(begins, 0.0), old_a.masked_fill(begins.unsqueeze(2), 0.0)
        product = F.linear(old_h if drop is None else old_h * drop, w_hh)
        if kind == "weinet":
            new_h, new_a = weinet(norm, parts, product, old_h, old_a, epsilon)
        else:
            assert norm is not None
            options = epsilon, decay, rate, inner_steps
            new_h, new_a = attend(ACTIVATIONS[kind], norm, parts, product, old_h, old_a, *options)
        kept = at(keep, time)
        new_h = new_h if kept is None else zoneout(new_h, old_h, kept)
        output = new_h
        if lengths is not None:
            active = (time < lengths).unsqueeze(1)
            output = torch.where(active, new_h, 0.0)
            new_h, new_a = torch.where(active, new_h, h), torch.where(active.unsqueeze(2), new_a, a)
        outputs.append(output)
        h, a = new_h, new_a
    return torch.stack(outputs), h, a


def attend(
    activation: Callable[[Tensor], Tensor],
    norm: Tensor,
    parts: Tensor,
    product: Tensor,
    h: Tensor,
    a: Tensor,
    epsilon: float,
    decay: float,
    rate: float,
    inner_steps: int,
) -> tuple[Tensor, Tensor]:
    """Take one step of fast weights.

    Args:
        activation: f.
        norm: Gain and bias (2, N).
        parts: C x_t + b (B, N).
        product: W h (B, N).
        h, a: The state before the step.
        epsilon, decay, rate, inner_steps: See `gyral.ops.fast_weights.fast_weights`.

    Returns:
        h before zoneout, and A.
    """
    a = decay * a + rate * h.unsqueeze(2) * h.unsqueeze(1)
    drive = parts + product
    h = activation(drive)
    for _ in range(inner_steps):
        read = torch.bmm(a, h.unsqueeze(2)).squeeze(2)
        h = activation(F.layer_norm(drive + read, h.shape[1:], norm[0], norm[1], epsilon))
    return h, a


def weinet(
    norm: Tensor | None, parts: Tensor, product: Tensor, h: Tensor, a: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Take one step of WeiNet; arguments as of `attend`, with parts (B, 7N) and product (B, 4N)."""
    size = h.shape[1]
    gates, value, key, candidate = parts.split((4 * size, size, size, size), dim=1)
    forget_row, forget_column, write_row, write_column = (gates + product).sigmoid().chunk(4, dim=1)
    a = a * (forget_row.unsqueeze(2) * forget_column.unsqueeze(1))
    a = a + (write_row * value).unsqueeze(2) * (write_column * key).unsqueeze(1)
    summed = candidate + torch.bmm(a, h.unsqueeze(2)).squeeze(2)
    if norm is not None:
        summed = F.layer_norm(summed, (size,), norm[0], norm[1], epsilon)
    return torch.tanh(summed), a
