"""Heads whose recurrent weights do not fit in registers, step by step: a product, and a kernel of all rows and units.

A product reads the weights once for all rows. The host launches the steps, for which it reads no values: a CUDA graph
can record them.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gyral.ops.compilation import compiles_only, start
from gyral.ops.slstm.naive import lowest_scale
from gyral.ops.slstm.triton.step import Gates, State, advance, advance_backward, reset
from gyral.ops.triton.launch import as_bytes

BLOCK = 256  # units of a program


class StepConfig(NamedTuple):
    """Compile-time constants of a kernel."""

    size: int  # N
    heads: int  # H
    width: int  # d
    block: int  # units of a program
    lowest: float  # m before the first step


class Units(NamedTuple):
    """Values inside a kernel: the units (K,) of a program, of any rows and heads."""

    at: Any  # offsets in (B, N)
    row: Any
    column: Any  # indices in (N,)
    inside: Any  # whether they exist
    of_head: Any  # offsets in (H, B, d)
    of_gates: Any  # offsets in (H, B, 4, d), of the first gate
    active: Any  # whether they exist and the step is within the length of the row
    follows: Any  # whether the next one is, too


@triton.jit
def _units(lengths, t, steps, rows, config: tl.constexpr):
    """Return the units of this program at step t."""
    at = tl.program_id(0).to(tl.int64) * config.block + tl.arange(0, config.block)
    row, column = at // config.size, at % config.size
    head, unit = column // config.width, column % config.width
    inside = row < rows
    length = tl.zeros(at.shape, tl.int32) + steps
    if lengths is not None:
        length = tl.load(lengths + row, mask=inside, other=0).to(tl.int32)
    of_row = head * rows.to(tl.int64) + row
    of_head, of_gates = of_row * config.width + unit, of_row * (4 * config.width) + unit
    return Units(at, row, column, inside, of_head, of_gates, inside & (t < length), inside & (t + 1 < length))


@triton.jit
def _started(starts, t, units, mask, rows):
    """Return whether the rows of the units are reset before step t; False beyond the mask."""
    found = mask & False
    if starts is not None:
        place = tl.cast(t, tl.int64) * rows + units.row
        found = tl.load(starts + place, mask=mask, other=0) != 0
    return found


@triton.jit
def _load_gates(values, at, distance, mask):
    """Return numbers of the four gates, some distance apart; zeros beyond the mask."""
    return Gates(
        tl.load(values + at, mask=mask, other=0.0),
        tl.load(values + at + distance, mask=mask, other=0.0),
        tl.load(values + at + 2 * distance, mask=mask, other=0.0),
        tl.load(values + at + 3 * distance, mask=mask, other=0.0),
    )


@triton.jit
def _store_gates(gates, values, at, distance, mask):
    tl.store(values + at, gates.write, mask=mask)
    tl.store(values + at + distance, gates.forget, mask=mask)
    tl.store(values + at + 2 * distance, gates.candidate, mask=mask)
    tl.store(values + at + 3 * distance, gates.output, mask=mask)


@triton.jit
def _load_before(first, states, t, units, rows, config: tl.constexpr):
    """Return c, n and m before step t, where the units are active: those of `first`, or of `states` (T, B, 3N)."""
    place = (tl.cast(t, tl.int64) - 1) * rows + units.row
    at = place * (3 * config.size) + units.column
    earlier, begins = units.active & (t > 0), units.active & (t == 0)
    cell = tl.load(states + at, mask=earlier, other=0.0)
    normalizer = tl.load(states + at + config.size, mask=earlier, other=0.0)
    scale = tl.load(states + at + 2 * config.size, mask=earlier, other=0.0)
    return State(
        cell + tl.load(first.cell + units.at, mask=begins, other=0.0),
        normalizer + tl.load(first.normalizer + units.at, mask=begins, other=0.0),
        scale + tl.load(first.scale + units.at, mask=begins, other=0.0),
    )


@triton.jit(do_not_specialize=["t", "steps", "rows"])
def forward_step(
    projected, products, cell, normalizer, scale, lengths, starts,
    outputs, final_hidden, final_cell, final_normalizer, final_scale, sums, states, factors,
    t, steps, rows, config: tl.constexpr,
):  # fmt: skip
    """Compute step t of all units, given the products (H, B, 4, d) of R with y before the step.

    `factors` (B, N), if it is not None, is what the next product reads: y, or zeros if the row is then reset. For the
    other arguments see `gyral.ops.slstm.triton.kernels.forward_slstm`.
    """
    units = _units(lengths, t, steps, rows, config)
    place = tl.cast(t, tl.int64) * rows + units.row
    before = _load_before(State(cell, normalizer, scale), states, t, units, rows, config)
    before = reset(before, _started(starts, t, units, units.active, rows), config.lowest)
    given = _load_gates(projected, place * (4 * config.size) + units.column, config.size, units.active)
    added = _load_gates(products, units.of_gates, config.width, units.active)
    added = Gates(
        given.write + added.write,
        given.forget + added.forget,
        given.candidate + added.candidate,
        given.output + added.output,
    )
    h, state = advance(added, before)
    h = tl.where(units.active, h, 0.0)
    _store_gates(added, sums, place * (4 * config.size) + units.column, config.size, units.active)
    tl.store(outputs + place * config.size + units.column, h, mask=units.inside)
    at = states + place * (3 * config.size) + units.column
    tl.store(at, state.cell, mask=units.active)
    tl.store(at + config.size, state.normalizer, mask=units.active)
    tl.store(at + 2 * config.size, state.scale, mask=units.active)
    if factors is not None:
        is_reset = _started(starts, t + 1, units, units.follows, rows)
        tl.store(factors + units.at, tl.where(is_reset, 0.0, h), mask=units.inside)
    is_last = units.active & (units.follows == 0)
    tl.store(final_hidden + units.at, h, mask=is_last)
    tl.store(final_cell + units.at, state.cell, mask=is_last)
    tl.store(final_normalizer + units.at, state.normalizer, mask=is_last)
    tl.store(final_scale + units.at, state.scale, mask=is_last)


@triton.jit
def _load_carried(values, grad_final, units):
    """Return gradients of the state after a step: those that the next step has left, or that of the final state."""
    found = tl.load(values + units.at, mask=units.follows, other=0.0)
    if grad_final is not None:
        found += tl.load(grad_final + units.at, mask=units.active & (units.follows == 0), other=0.0)
    return found


@triton.jit(do_not_specialize=["t", "steps", "rows"])
def backward_step(
    sums, products, cell, normalizer, scale, lengths, starts, states,
    grad_outputs, grad_final_hidden, grad_final_cell, grad_final_normalizer, grad_final_scale,
    grad_cell, grad_normalizer, grad_scale, factors,
    t, steps, rows, config: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of step t, in place of the sums; zeros beyond the lengths.

    `products` (H, B, d) has the gradient of y through the sums of the next step, and `factors` (H, B, 4, d) gets the
    gradients of the sums, which the product of this step reads. `grad_cell`, `grad_normalizer` and `grad_scale` have
    those of the state after the step, which become those of the state before it. For the other arguments see
    `gyral.ops.slstm.triton.kernels.backward_slstm`.
    """
    units = _units(lengths, t, steps, rows, config)
    place = tl.cast(t, tl.int64) * rows + units.row
    started = _started(starts, t, units, units.active, rows)
    before = _load_before(State(cell, normalizer, scale), states, t, units, rows, config)
    before = reset(before, started, config.lowest)
    at = states + place * (3 * config.size) + units.column
    after = State(
        tl.load(at, mask=units.active, other=0.0),
        tl.load(at + config.size, mask=units.active, other=1.0),
        tl.load(at + 2 * config.size, mask=units.active, other=0.0),
    )
    dh = tl.load(products + units.of_head, mask=units.follows, other=0.0)
    dh = tl.where(_started(starts, t + 1, units, units.follows, rows), 0.0, dh)
    if grad_final_hidden is not None:
        dh += tl.load(grad_final_hidden + units.at, mask=units.active & (units.follows == 0), other=0.0)
    if grad_outputs is not None:
        dh += tl.load(grad_outputs + place * config.size + units.column, mask=units.active, other=0.0)
    d = State(
        _load_carried(grad_cell, grad_final_cell, units),
        _load_carried(grad_normalizer, grad_final_normalizer, units),
        _load_carried(grad_scale, grad_final_scale, units),
    )
    of_sums = place * (4 * config.size) + units.column
    gradients, d = advance_backward(_load_gates(sums, of_sums, config.size, units.active), before, after, dh, d)
    gradients = Gates(
        tl.where(units.active, gradients.write, 0.0),
        tl.where(units.active, gradients.forget, 0.0),
        tl.where(units.active, gradients.candidate, 0.0),
        tl.where(units.active, gradients.output, 0.0),
    )
    tl.debug_barrier()  # other threads may store an element: all have loaded it before one overwrites it
    _store_gates(gradients, sums, of_sums, config.size, units.inside)
    _store_gates(gradients, factors, units.of_gates, config.width, units.inside)
    d = reset(d, started, 0.0)
    tl.store(grad_cell + units.at, d.cell, mask=units.active)
    tl.store(grad_normalizer + units.at, d.normalizer, mask=units.active)
    tl.store(grad_scale + units.at, d.scale, mask=units.active)


def _launch(kernel: Any, a: Any, t: int, given: list[Any]) -> None:
    """Launch a kernel for step t of all units."""
    (steps, batch, _), (heads, _, width, _) = a.projected.shape, a.weight_hh.shape
    config = StepConfig(heads * width, heads, width, BLOCK, lowest_scale(a.hidden.dtype))
    programs = -(-batch * config.size // BLOCK)
    start(kernel, programs, *given, t, steps, batch, config=config, num_warps=4)


def _by_head(vectors: Tensor, heads: int) -> Tensor:
    """Return a view (H, B, d) of vectors (B, N)."""
    return vectors.unflatten(1, (heads, -1)).transpose(0, 1)


def forward(a: Any, results: list[Any], saved: list[Any]) -> None:
    """Run all steps; write results and saved tensors, see `gyral.ops.slstm.triton.launch`."""
    outputs, (heads, _, width, _) = results[0], a.weight_hh.shape
    weight, starts = a.weight_hh.flatten(1, 2).transpose(1, 2), as_bytes(a.starts)
    products = a.hidden.new_empty(heads, len(a.hidden), 4 * width)
    factors = None if a.starts is None else a.hidden.masked_fill(a.starts[0].unsqueeze(1), 0.0)
    given = [a.projected, products, a.cell, a.normalizer, a.scale, a.lengths, starts, *results, *saved, factors]
    with torch.cuda.device_of(outputs):
        for t in range(1 if compiles_only() else len(outputs)):
            read = factors if factors is not None else a.hidden if t == 0 else outputs[t - 1]
            torch.bmm(_by_head(read, heads), weight, out=products)
            _launch(forward_step, a, t, given)


def backward(a: Any, saved: list[Any], gradients: list[Any], found: dict[str, Tensor]) -> None:
    """Run all steps in reverse; overwrite the sums with their gradients, and write those of the state in `found`."""
    (sums, states), (heads, _, width, _) = saved, a.weight_hh.shape
    starts, weight, batch = as_bytes(a.starts), a.weight_hh.flatten(1, 2), len(a.hidden)
    factors, products = a.hidden.new_empty(heads, batch, 4 * width), a.hidden.new_empty(heads, batch, width)
    carried = [found[name] for name in ("cell", "normalizer", "scale")]
    given = [sums, products, a.cell, a.normalizer, a.scale, a.lengths, starts, states, *gradients, *carried, factors]
    with torch.cuda.device_of(sums):
        for t in reversed(range(1 if compiles_only() else len(sums))):
            _launch(backward_step, a, t, given)
            torch.bmm(factors, weight, out=products)
    found["hidden"].copy_(products.transpose(0, 1).flatten(1))
    if a.starts is not None:
        found["hidden"].masked_fill_(a.starts[0].unsqueeze(1), 0.0)
