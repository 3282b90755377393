"""The kernels of a state space: the scan of its P complex numbers, and D ⊙ x for its N outputs, in one launch."""

import triton
import triton.language as tl

from gyral.ops.diagonal.triton.kernels import BLOCK, BLOCK_STEPS, backward_scan, channels, forward_scan
from gyral.ops.triton.sequences import load_lengths


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_layer(
    driven,
    decay,
    inputs,
    skip,
    h0,
    lengths,
    starts,
    hidden,
    final,
    outputs,
    steps,
    rows,
    size: tl.constexpr,
    config: tl.constexpr,
):
    """Write the states (T, B, 2P) and the last ones (B, 2P), and D ⊙ x (T, B, N), to which the product with C is added.

    Args:
        driven: f ⊙ (B x), (T, B, 2P).
        decay: λ, (2P,).
        inputs, skip: x, (T, B, N), and D, (N,).
        h0, lengths, starts, steps, rows: See `gyral.ops.diagonal.triton.kernels.forward_scan`.
        hidden, final, outputs: Where the results are written; the outputs are zero beyond the lengths.
        size: N.
        config: Of the scan.
    """
    if tl.program_id(0).to(tl.int64) * BLOCK < rows.to(tl.int64) * config.size:
        forward_scan(
            driven, None, decay, None, h0, None, lengths, starts, hidden, final, None, steps, rows, config=config
        )
    row, unit, here, at = channels(rows, size, size)
    length = load_lengths(lengths, row, here, steps)
    scale = tl.load(skip + unit)[None, :]
    for first in range(0, steps, BLOCK_STEPS):
        t = first + tl.arange(0, BLOCK_STEPS)
        exists = (t < steps)[:, None] & here[None, :]
        valid = exists & (t[:, None] < length[None, :])
        place = t[:, None] * (rows.to(tl.int64) * size) + at[None, :]
        x = tl.load(inputs + place, mask=valid, other=0.0)
        tl.store(outputs + place, tl.where(valid, scale * x, 0.0), mask=exists)


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_layer(
    driven,
    decay,
    inputs,
    skip,
    h0,
    lengths,
    starts,
    hidden,
    grad_outputs,
    grad_hidden,
    grad_final,
    grad_driven,
    grad_inputs,
    grad_h0,
    decay_sums,
    skip_sums,
    steps,
    rows,
    size: tl.constexpr,
    config: tl.constexpr,
):
    """Write the gradients of `driven` and h0, and D ⊙ dy, the part of the gradient of x that does not go through h.

    The gradients of λ and D are written as sums over the steps of each row, (B, 2P) and (B, N). The gradients of the
    outputs and of the states may both be None.
    """
    if tl.program_id(0).to(tl.int64) * BLOCK < rows.to(tl.int64) * config.size:
        backward_scan(
            driven,
            None,
            decay,
            None,
            h0,
            None,
            lengths,
            starts,
            hidden,
            grad_hidden,
            grad_final,
            grad_driven,
            None,
            decay_sums,
            grad_h0,
            steps,
            rows,
            config=config,
        )
    row, unit, here, at = channels(rows, size, size)
    length = load_lengths(lengths, row, here, steps)
    scale = tl.load(skip + unit)[None, :]
    sums = tl.zeros([BLOCK_STEPS, BLOCK], tl.float32)
    for first in range(0, steps, BLOCK_STEPS):
        t = first + tl.arange(0, BLOCK_STEPS)
        exists = (t < steps)[:, None] & here[None, :]
        valid = exists & (t[:, None] < length[None, :])
        place = t[:, None] * (rows.to(tl.int64) * size) + at[None, :]
        dy = tl.zeros([BLOCK_STEPS, BLOCK], tl.float32)
        if grad_outputs is not None:
            dy = tl.load(grad_outputs + place, mask=valid, other=0.0)
            sums += dy * tl.load(inputs + place, mask=valid, other=0.0)
        tl.store(grad_inputs + place, tl.where(valid, scale * dy, 0.0), mask=exists)
    tl.store(skip_sums + at, tl.sum(sums, axis=0), mask=here)
