"""The kernels. A program has some heads of steps and rows, (K, V) numbers, in registers."""

from typing import NamedTuple

import triton
import triton.language as tl

from gyral.ops.normalized_heads.naive import EPSILON
from gyral.ops.triton.rows import normalize, totals_2

_EPSILON, _ALL = tl.constexpr(EPSILON), tl.constexpr(tl.PropagateNan.ALL)


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    size: int  # V
    block: int  # V rounded up to a power of 2
    heads: int  # of a program
    epsilon: float


@triton.jit
def _load(outputs, least, count, config: tl.constexpr):
    """Return indices of heads (K, 1) and columns (1, V), the mask, c (K, V), n, its denominator and e^{−m} (K, 1)."""
    head = tl.program_id(0).to(tl.int64) * config.heads + tl.arange(0, config.heads)[:, None]
    columns = tl.arange(0, config.block)[None, :]
    mask = (head < count) & (columns < config.size)
    at = outputs + head * (config.size + 1)
    c = tl.load(at + columns, mask=mask, other=0.0)
    n = tl.load(at + config.size, mask=head < count, other=1.0)
    smallest = tl.load(least + head, mask=head < count, other=0.0)
    return head, columns, mask, c, n, tl.maximum(tl.abs(n), smallest, propagate_nan=_ALL) + _EPSILON, smallest


@triton.jit(do_not_specialize=["count"])
def forward_heads(outputs, least, results, count, config: tl.constexpr):
    """Write y (count, V) for [c; n] (count, V + 1) and e^{−m} (count,)."""
    head, columns, mask, c, _, denominator, _ = _load(outputs, least, count, config)
    y, _ = normalize(c / denominator, config.epsilon, columns, config.size)
    tl.store(results + head * config.size + columns, y, mask=mask)


@triton.jit(do_not_specialize=["count"])
def backward_heads(outputs, least, grad, grad_outputs, grad_least, count, config: tl.constexpr):
    """Write the gradients of [c; n] and e^{−m}. The smaller of |n| and e^{−m} has none; equal ones have half each."""
    head, columns, mask, c, n, denominator, smallest = _load(outputs, least, count, config)
    y, scale = normalize(c / denominator, config.epsilon, columns, config.size)
    d = tl.load(grad + head * config.size + columns, mask=mask, other=0.0)
    mean, along = totals_2(d, d * y)
    dh = tl.where(mask, scale * (d - mean / config.size - y * (along / config.size)), 0.0)
    # Σ dh h: without ε, y would not depend on the size of h, and the terms would cancel
    of_denominator = -along * config.epsilon * scale * scale / denominator
    share = tl.where(tl.abs(n) > smallest, 1.0, tl.where(tl.abs(n) == smallest, 0.5, 0.0))
    sign = tl.where(n > 0, 1.0, tl.where(n < 0, -1.0, 0.0))
    to = grad_outputs + head * (config.size + 1)
    tl.store(to + columns, dh / denominator, mask=mask)
    tl.store(to + config.size, of_denominator * share * sign, mask=head < count)
    tl.store(grad_least + head, of_denominator * (1.0 - share), mask=head < count)
