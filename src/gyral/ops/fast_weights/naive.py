"""The recurrences of `gyral.ops.fast_weights` in plain torch, step by step; A is built at each step.

The kernels compute the same; this code is the reference of their tests and gives their second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.fast_weights import Options, Tensors
from gyral.ops.zoneout import zoneout


def naive(options: Options, tensors: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    """Run all steps; see `gyral.ops.fast_weights.run`."""
    step = weinet if options.kind == "weinet" else fast_weights
    parts = F.linear(tensors.x, tensors.w_ih, tensors.bias)
    h, a = tensors.h0, tensors.a0
    outputs = []
    for time, own in enumerate(parts.unbind(0)):
        old_h, old_a = h, a
        if options.starts is not None:
            starts = options.starts[time].unsqueeze(1)
            old_h, old_a = old_h.masked_fill(starts, 0.0), old_a.masked_fill(starts.unsqueeze(2), 0.0)
        entering = old_h if options.drop is None else old_h * options.drop
        new_h, new_a = step(options, tensors.norm, own, F.linear(entering, tensors.w_hh), old_h, old_a)
        if options.keep is not None:
            new_h = zoneout(new_h, old_h, options.keep[time] if isinstance(options.keep, Tensor) else options.keep)
        output = new_h
        if options.lengths is not None:
            active = (time < options.lengths).unsqueeze(1)
            output = torch.where(active, new_h, 0.0)
            new_h, new_a = torch.where(active, new_h, h), torch.where(active.unsqueeze(2), new_a, a)
        outputs.append(output)
        h, a = new_h, new_a
    return torch.stack(outputs), h, a


def fast_weights(
    options: Options, norm: Tensor | None, parts: Tensor, product: Tensor, h: Tensor, a: Tensor
) -> tuple[Tensor, Tensor]:
    """Take one step of fast weights.

    Args:
        options: See `gyral.ops.fast_weights.run`.
        norm: Gain and bias (2, N).
        parts: C x_t + b (B, N).
        product: W h (B, N).
        h, a: The state before the step.

    Returns:
        h before zoneout, and A.
    """
    assert norm is not None
    gain, bias = norm
    activation = {"relu": torch.relu, "tanh": torch.tanh}[options.kind]
    a = options.decay * a + options.rate * h.unsqueeze(2) * h.unsqueeze(1)
    drive = parts + product
    h = activation(drive)
    for _ in range(options.inner_steps):
        read = torch.bmm(a, h.unsqueeze(2)).squeeze(2)
        h = activation(F.layer_norm(drive + read, h.shape[1:], gain, bias, options.epsilon))
    return h, a


def weinet(
    options: Options, norm: Tensor | None, parts: Tensor, product: Tensor, h: Tensor, a: Tensor
) -> tuple[Tensor, Tensor]:
    """Take one step of WeiNet; arguments as of `fast_weights`, with parts (B, 7N) and product (B, 4N)."""
    size = h.shape[1]
    gates, value, key, candidate = parts.split((4 * size, size, size, size), dim=1)
    forget_row, forget_column, write_row, write_column = (gates + product).sigmoid().chunk(4, dim=1)
    a = a * (forget_row.unsqueeze(2) * forget_column.unsqueeze(1))
    a = a + (write_row * value).unsqueeze(2) * (write_column * key).unsqueeze(1)
    summed = candidate + torch.bmm(a, h.unsqueeze(2)).squeeze(2)
    if norm is not None:
        gain, bias = norm
        summed = F.layer_norm(summed, (size,), gain, bias, options.epsilon)
    return torch.tanh(summed), a
