"""Recurrences step by step, for sizes whose weights do not fit in registers: a product, and a kernel for all its rows.

A product reads the recurrent weights once for all rows. The host launches the steps, for which it reads no values: a
CUDA graph can record them.
"""

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gyral.ops.compilation import compiles_only, start
from gyral.ops.gated.triton.config import Config, config_of
from gyral.ops.gated.triton.step import (
    load_parts,
    load_rows,
    load_zoneout,
    step_backward,
    step_forward,
    store_parts,
    store_rows,
    zone_out,
    zone_out_backward,
)
from gyral.ops.sequences import split_keep
from gyral.ops.triton.launch import as_bytes

# The numbers of a row for each warp, two for each thread: with four of them, rows with another alignment would have
# another layout. Rows of up to twice as many have one warp, which needs no barriers.
NUMBERS = 64


# Rows that have ended are computed, too, but nothing of them is kept: no load waits for the length of its row.


@triton.jit
def _length(lengths, row, steps):
    length = steps
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    return length


@triton.jit
def _begins(starts, index, exists):
    """Return whether a row is reset before a step, if it exists; `starts` may be None."""
    begins = exists & False
    if starts is not None:
        begins = tl.load(starts + index, mask=exists, other=0) != 0
    return begins


@triton.jit
def _load_state(state, row, past, index, lag, is_first, columns, count: tl.constexpr, size: tl.constexpr):
    """Return rows of h or c before a step: those of `state` (B, …), or of `past` (T, B, …), some steps ago."""
    width: tl.constexpr = count * size
    at = past + (index - lag) * width
    if is_first:
        at = state + row * width
    return load_rows(at, columns, True, count, size)


@triton.jit
def _reset(rows, fresh, begins, columns, count: tl.constexpr, size: tl.constexpr):
    """Return rows after a reset to `fresh`, or to zeros if it is None, if the row begins."""
    found = ()
    for index in tl.static_range(count):
        row = tl.zeros_like(rows[index])
        if fresh is not None:
            row = tl.load(fresh + index * size + columns, mask=columns < size, other=0.0)
        found += (tl.where(begins, row, rows[index]),)
    return found


@triton.jit(do_not_specialize=["t", "next_t", "lag", "steps", "batch"])
def forward_rows(
    parts, products, extra, h0, c0, past, past_cell_states, fresh, keep, keep_cell_state, lengths, starts,
    outputs, cell_states, kept, final_hidden, final_cell_state, next_starts, next_drop, factors,
    t, next_t, lag, steps, batch, keep_mean, keep_cell_state_mean, epsilon, config: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Compute step t of each row from the products (B, G) of the recurrent weights, one row a program.

    `past` (T, B, H) has h before step t in row t − `lag`, or `h0` has it. `factors` (B, H), if it is not None, is what
    the next product reads, before its step `next_t`.
    """
    size: tl.constexpr = config.size
    count: tl.constexpr = config.hidden
    hidden_size: tl.constexpr = count * size
    zoneout: tl.constexpr = config.zoneout
    zoneout_cell_state: tl.constexpr = config.zoneout_cell_state
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    index = row + tl.cast(t, tl.int64) * batch
    length = _length(lengths, row, steps)
    active = t < length
    begins = _begins(starts, index, t < steps)
    distance, is_first = tl.cast(lag, tl.int64) * batch, t < lag
    h = _load_state(h0, row, past, index, distance, is_first, columns, count, size)
    c = h
    if config.has_cell_state:
        c = _load_state(c0, row, past_cell_states, index, distance, is_first, columns, 1, size)
    if starts is not None:
        h = _reset(h, fresh, begins, columns, count, size)
        if config.has_cell_state:
            c = _reset(c, None, begins, columns, 1, size)
    given = load_parts(parts + index * config.width, columns, True, config)
    added = load_parts(products + row * config.width, columns, True, config)
    further = load_rows(extra, columns, True, config.extra, size)
    new, new_c, saved, product = step_forward(given, added, h, c[0], further, columns, epsilon, config)
    factor = load_zoneout(keep + index * hidden_size, keep_mean, columns, True, zoneout, count, size)
    new = zone_out(new, h, factor, zoneout, count)
    tl.debug_barrier()  # several threads may hold an element: all have loaded it before one overwrites it
    store_parts(saved, parts + index * config.width, columns, active, config)
    if config.keeps_product:
        tl.store(kept + index * size + columns, product, mask=active & (columns < size))
    found = ()
    for each in tl.static_range(count):
        found += (tl.where(active, new[each], 0.0),)
    store_rows(found, outputs + index * hidden_size, columns, True, count, size)
    if final_hidden is not None:
        store_rows(found, final_hidden + row * hidden_size, columns, t + 1 == length, count, size)
    if config.has_cell_state:
        factor = load_zoneout(
            keep_cell_state + index * size, keep_cell_state_mean, columns, True, zoneout_cell_state, 1, size
        )
        new_c = zone_out((new_c,), c, factor, zoneout_cell_state, 1)
        store_rows(new_c, cell_states + index * size, columns, active, 1, size)
        if final_hidden is not None:
            store_rows(new_c, final_cell_state + row * size, columns, t + 1 == length, 1, size)
    if factors is not None:
        ahead = next_t < steps
        if next_starts is not None:
            at_next = row + tl.cast(next_t, tl.int64) * batch
            found = _reset(found, fresh, _begins(next_starts, at_next, ahead), columns, count, size)
        for each in tl.static_range(count):
            here = row * hidden_size + each * size + columns
            read = found[each]
            if next_drop is not None:
                read *= tl.load(next_drop + here, mask=columns < size, other=0.0)
            tl.store(factors + here, read, mask=ahead & (columns < size))


@triton.jit(do_not_specialize=["t", "next_t", "lag", "steps", "batch"])
def backward_rows(
    parts, extra, h0, c0, past, past_cell_states, fresh, keep, keep_cell_state, lengths, starts, kept,
    grad_outputs, grad_final, grad_final_cell_state, next_starts, next_drop, direct, through, carried,
    grad_extra, grad_fresh, t, next_t, lag, steps, batch, keep_mean, keep_cell_state_mean, epsilon,
    config: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of the parts and products of step t from those of the next step, one row a program.

    `direct` and `through` (B, H) are gradients of h after the step, without the path through the next product, and with
    it alone, before its factors; `direct` and `carried` (B, N), the gradient of c, become those of h and c before the
    step. After the last step of a row the gradients of the final state take their place. `grad_extra` and `grad_fresh`
    (B, …) are sums over the steps.
    """
    size: tl.constexpr = config.size
    count: tl.constexpr = config.hidden
    hidden_size: tl.constexpr = count * size
    zoneout: tl.constexpr = config.zoneout
    zoneout_cell_state: tl.constexpr = config.zoneout_cell_state
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    index = row + tl.cast(t, tl.int64) * batch
    length = _length(lengths, row, steps)
    active = t < length
    follows = next_t < length
    begins = _begins(starts, index, t < steps)
    distance, is_first = tl.cast(lag, tl.int64) * batch, t < lag
    h = _load_state(h0, row, past, index, distance, is_first, columns, count, size)
    c, dc = h, h
    if config.has_cell_state:
        c = _load_state(c0, row, past_cell_states, index, distance, is_first, columns, 1, size)
    if starts is not None:
        h = _reset(h, fresh, begins, columns, count, size)
        if config.has_cell_state:
            c = _reset(c, None, begins, columns, 1, size)
    saved = load_parts(parts + index * config.width, columns, True, config)
    product = saved[0]
    if config.keeps_product:
        product = tl.load(kept + index * size + columns, mask=columns < size, other=0.0)
    further = load_rows(extra, columns, True, config.extra, size)

    exists = next_t < steps
    begins_next = _begins(next_starts, row + tl.cast(next_t, tl.int64) * batch, exists) & follows
    d = load_rows(direct + row * hidden_size, columns, exists, count, size)
    by_product = load_rows(through + row * hidden_size, columns, exists, count, size)
    inside = columns < size
    passed, fresh_sums, extra_sums = (), (), ()
    for each in tl.static_range(count):
        here = row * hidden_size + each * size + columns
        d_after = by_product[each]
        if next_drop is not None:
            d_after *= tl.load(next_drop + here, mask=inside, other=0.0)
        d_after += d[each]
        if next_starts is not None:
            if grad_fresh is not None:
                sums = tl.load(grad_fresh + here, mask=inside, other=0.0)
                fresh_sums += (sums + tl.where(begins_next, d_after, 0.0),)
            d_after = tl.where(begins_next, 0.0, d_after)
        last = 0.0
        if grad_final is not None:
            last = tl.load(grad_final + here, mask=inside, other=0.0)
        d_after = tl.where(follows, d_after, last)
        if grad_outputs is not None:
            d_after += tl.load(grad_outputs + index * hidden_size + each * size + columns, mask=inside, other=0.0)
        passed += (d_after,)
    factor = load_zoneout(keep + index * hidden_size, keep_mean, columns, True, zoneout, count, size)
    d, d_old = zone_out_backward(passed, factor, zoneout, count)
    dc_old = dc
    if config.has_cell_state:
        dc = load_rows(carried + row * size, columns, exists, 1, size)
        last = 0.0
        if grad_final_cell_state is not None:
            last = tl.load(grad_final_cell_state + row * size + columns, mask=inside, other=0.0)
        dc = (tl.where(follows, tl.where(begins_next, 0.0, dc[0]), last),)
        factor = load_zoneout(
            keep_cell_state + index * size, keep_cell_state_mean, columns, True, zoneout_cell_state, 1, size
        )
        dc, dc_old = zone_out_backward(dc, factor, zoneout_cell_state, 1)
    d_parts, d_product, d, dc, d_extra = step_backward(
        d, dc[0], saved, product, h, c[0], further, columns, epsilon, config
    )
    further_count: tl.constexpr = config.extra
    for each in tl.static_range(further_count):
        sums = tl.load(grad_extra + (row * config.extra + each) * size + columns, mask=inside, other=0.0)
        extra_sums += (sums + tl.where(active, d_extra[each], 0.0),)
    tl.debug_barrier()  # several threads may hold an element: all have loaded it before one overwrites it
    if config.extra > 0:
        store_rows(extra_sums, grad_extra + row * (config.extra * size), columns, True, config.extra, size)
    if grad_fresh is not None:
        store_rows(fresh_sums, grad_fresh + row * hidden_size, columns, True, count, size)
    before = ()
    for each in tl.static_range(count):
        before += (tl.where(active, d[each] + d_old[each], 0.0),)
    store_rows(before, direct + row * hidden_size, columns, True, count, size)
    if config.has_cell_state:
        before = (tl.where(active, dc + dc_old[0], 0.0),)
        store_rows(before, carried + row * size, columns, True, 1, size)
    zeroed = ()
    parts_count: tl.constexpr = len(config.widths)
    for each in tl.static_range(parts_count):
        zeroed += (tl.where(active, d_parts[each], 0.0),)
    store_parts(zeroed, parts + index * config.width, columns, True, config)
    if config.keeps_product:
        tl.store(kept + index * size + columns, tl.where(active, d_product, 0.0), mask=inside)


class Recurrence(NamedTuple):
    """A recurrence whose steps are launched one by one.

    Others may update its state, too, as in fast-slow networks: h before step t is then the output of another one at
    step t − `lag`, and another one reads the state after it, at step t + `next_lag`.

    Attributes:
        config: See `gyral.ops.gated.triton.config`.
        weight: Recurrent weights (G, H).
        parts: P_t of all steps (T, B, G), which become what backward reads, and then their gradients.
        extra, h0, c0, fresh, keep, keep_cell_state, lengths, starts: See `gyral.ops.gated.gated`; masks as uint8.
        outputs, cell_states: (T, B, H) and (T, B, N) or None.
        kept: (T, B, N), the last products, which become their gradients; or None.
        keep_mean, keep_cell_state_mean, epsilon: Numbers.
        past, past_cell_states: Outputs and cell states from which the state before a step is read; None: its own.
        lag: How many steps before; for the first steps the state is `h0`, `c0`.
        next_starts, next_drop: Starts and recurrent dropout of the recurrence that reads the state next.
        next_lag: How many steps later it does so.
    """

    config: Config
    weight: Tensor
    parts: Tensor
    extra: Tensor | None
    h0: Tensor
    c0: Tensor | None
    fresh: Tensor | None
    keep: Tensor | None
    keep_cell_state: Tensor | None
    lengths: Tensor | None
    starts: Tensor | None
    outputs: Tensor
    cell_states: Tensor | None
    kept: Tensor | None
    keep_mean: float
    keep_cell_state_mean: float
    epsilon: float
    past: Tensor | None = None
    past_cell_states: Tensor | None = None
    lag: int = 1
    next_starts: Tensor | None = None
    next_drop: Tensor | None = None
    next_lag: int = 1

    @property
    def _shared(self) -> tuple[Any, ...]:
        past = self.outputs if self.past is None else self.past
        cell_states = self.cell_states if self.past_cell_states is None else self.past_cell_states
        # the kernels read no mask of zoneout that is absent, but compute addresses in it
        masks = [self.parts if mask is None else mask for mask in (self.keep, self.keep_cell_state)]
        return self.extra, self.h0, self.c0, past, cell_states, self.fresh, *masks, self.lengths, self.starts

    @property
    def _numbers(self) -> tuple[Any, ...]:
        return self.lag, *self.parts.shape[:2], self.keep_mean, self.keep_cell_state_mean, self.epsilon

    def forward(
        self, t: int, read: Tensor, products: Tensor, final: tuple[Tensor | None, Tensor | None], factors: Tensor | None
    ) -> None:
        """Take step t.

        Args:
            t: The step.
            read: (B, H), what the product reads: h before the step, after a reset, times `drop`.
            products: (B, G), memory for the products.
            final: (B, H) and (B, N), where the state after the last step of each row is written; or None.
            factors: (B, H), where what the next product reads is written, which may be `read`; or None.
        """
        torch.mm(read, self.weight.T, out=products)
        start(
            forward_rows,
            len(products),
            *(self.parts, products, *self._shared, self.outputs, self.cell_states, self.kept, *final),
            *(self.next_starts, self.next_drop, factors, t, t + self.next_lag, *self._numbers),
            **_settings(self.config),
        )

    def backward(
        self,
        t: int,
        grad_outputs: Tensor | None,
        final: tuple[Tensor | None, Tensor | None],
        carried: tuple[Tensor, Tensor, Tensor | None],
        sums: tuple[Tensor | None, Tensor | None],
    ) -> None:
        """Take step t back.

        Args:
            t: The step.
            grad_outputs: (T, B, H), or None for zeros.
            final: The gradients of the state after the last step of each row, or None for zeros.
            carried: The gradients of h after the step, without (B, H) the path through the next product, and with it
                alone, before the factors `next_drop`; and of c (B, N) or None. They become those before the step.
            sums: (B, E) and (B, H), the sums over the steps of the gradients of `extra` and `fresh`, or None.
        """
        direct, through, carried_cell_state = carried
        start(
            backward_rows,
            len(direct),
            *(self.parts, *self._shared, self.kept, grad_outputs, *final, self.next_starts, self.next_drop),
            *(direct, through, carried_cell_state, *sums, t, t + self.next_lag, *self._numbers),
            **_settings(self.config),
        )
        added = self.config.width - (0 if self.kept is None else self.config.size)
        torch.mm(self.parts[t, :, :added], self.weight[:added], out=through)
        if self.kept is not None:
            through.addmm_(self.kept[t], self.weight[added:])


@functools.cache  # Triton's functions of integers take microseconds
def _settings(config: Config) -> dict[str, Any]:
    """Return the settings that are fixed when a kernel is compiled."""
    block = max(triton.next_power_of_2(config.size), 16)
    return {"config": config, "block": block, "num_warps": 1 if block <= 2 * NUMBERS else min(block // NUMBERS, 16)}


def recurrence(a: Any, outputs: Tensor, saved: list[Any]) -> Recurrence:
    """Return the recurrence of the arguments of `gyral.ops.gated.naive.gated`, with one bias and dense weights.

    Args:
        a: The arguments.
        outputs: (T, B, H).
        saved: Parts (T, B, G), cell states (T, B, N) or None, and the last products (T, B, N) or None.
    """
    parts, cell_states, kept = saved
    (keep, mean), (keep_cell_state, cell_state_mean) = split_keep(a.keep), split_keep(a.keep_cell_state)
    starts = as_bytes(a.starts)
    return Recurrence(
        *(config_of(a), a.w_hh, parts, a.extra, a.h0, a.c0, a.fresh, keep, keep_cell_state, a.lengths, starts),
        *(outputs, cell_states, kept, mean, cell_state_mean, float(a.epsilon)),
        next_starts=starts,
        next_drop=a.drop,
    )


def first_factors(a: Any) -> Tensor | None:
    """Return what the first product reads (B, H), in new memory; None if it is h before each step."""
    if a.starts is None and a.drop is None:
        return None
    found = a.h0
    if a.starts is not None:
        found = torch.where(a.starts[0].unsqueeze(1), 0.0 if a.fresh is None else a.fresh, found)
    return found if a.drop is None else found * a.drop


def forward(a: Any, results: list[Any], saved: list[Any]) -> None:
    """Run all steps; write the results, and what is saved.

    Args:
        a: The arguments of `gyral.ops.gated.naive.gated`, with one bias and dense weights.
        results: Outputs, hidden vector and cell state, without values.
        saved: See `recurrence`; the parts are W_ih x_t + b.
    """
    outputs, *final = results
    own, factors = recurrence(a, outputs, saved), first_factors(a)
    products = a.w_hh.new_empty(len(a.h0), own.config.width)
    steps = min(len(outputs), 1) if compiles_only() else len(outputs)
    with torch.cuda.device_of(outputs):
        for t in range(steps):
            read = factors if factors is not None else a.h0 if t == 0 else outputs[t - 1]
            own.forward(t, read, products, (final[0], final[1]), factors)


def backward(a: Any, results: list[Any], saved: list[Any], gradients: list[Any]) -> dict[str, Any]:
    """Run all steps in reverse; what is saved becomes the gradients of parts and of the last products.

    Returns:
        The gradients of h0, c0, extra and fresh by name, None for absent ones.
    """
    own, (grad_outputs, *final) = recurrence(a, results[0], saved), gradients
    carried = torch.empty_like(a.h0), torch.empty_like(a.h0), None if a.c0 is None else torch.empty_like(a.c0)
    grad_extra = None if a.extra is None else a.extra.new_zeros(len(a.h0), *a.extra.shape)
    grad_fresh = None if a.fresh is None or a.starts is None else torch.zeros_like(a.h0)
    steps = len(results[0])
    with torch.cuda.device_of(a.h0):
        for t in range(steps - 1, max(steps - 2, -1) if compiles_only() else -1, -1):
            own.backward(t, grad_outputs, (final[0], final[1]), carried, (grad_extra, grad_fresh))
    hidden, through, cell_state = carried
    hidden += through if a.drop is None else through * a.drop
    if a.starts is not None:
        begins = a.starts[0].unsqueeze(1)
        if grad_fresh is not None:
            grad_fresh += torch.where(begins, hidden, 0.0)
        hidden = torch.where(begins, 0.0, hidden)
        cell_state = None if cell_state is None else torch.where(begins, 0.0, cell_state)
    return {
        "h0": hidden,
        "c0": cell_state,
        "extra": None if grad_extra is None else grad_extra.sum(0),
        "fresh": None if grad_fresh is None else grad_fresh.sum(0),
    }
