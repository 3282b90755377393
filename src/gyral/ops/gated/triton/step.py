"""A step for rows of any kind, forward and backward: the functions that the kernels share.

A row has N columns, padded with zeros to a power of 2: (N,) for one row, (K, N) for K of them. What a step reads and
computes are tuples of such rows. P_t consists of the rows of `Config.widths`, to each of which belongs one row of the
product W h. A hidden vector has two rows for complex numbers, else one.
"""

import triton
import triton.language as tl

from gyral.ops.gated.triton.kinds import (
    complex_modrelu,
    complex_modrelu_backward,
    goru,
    goru_backward,
    gru,
    gru_backward,
    lstm,
    lstm_backward,
    modrelu,
    modrelu_backward,
)
from gyral.ops.gated.triton.normalized import (
    normalized_goru,
    normalized_goru_backward,
    normalized_lstm,
    normalized_lstm_backward,
    on_lstm,
    on_lstm_backward,
)
from gyral.ops.triton.rows import tanh


@triton.jit
def step_forward(parts, products, hidden, cell_state, extra, columns, epsilon, config: tl.constexpr):
    """Return h and c after a step, before zoneout, and what backward needs.

    Args:
        parts, products: Tuples of the rows of P_t and of W h.
        hidden, cell_state: A tuple of the rows of h, and c, before the step. Without a cell state, c is not read.
        extra: A tuple of the rows of the further parameters, (N,) or (1, N).
        columns: The numbers of the columns, (N,) or (1, N).
        epsilon: What layer normalization adds to the variance.
        config: A `Config`.

    Returns:
        h and c; the rows that take the place of `parts`; and the last product, with what is added to it, which is read
        only if `config.keeps_product`. Columns beyond the width of a row are zero in h and c if they are in the rows
        that are given.
    """
    product = products[0]
    if config.kind == "lstm":
        new, cell_state, saved = lstm(parts, products, cell_state)
        hidden = (new,)
    elif config.kind == "gru":
        new, saved, product = gru(parts, products, hidden[0], extra, config)
        hidden = (new,)
    elif config.kind == "goru":
        new, saved, product = goru(parts, products, hidden[0], extra[0])
        hidden = (new,)
    elif config.kind == "complex_modrelu":
        hidden, saved = complex_modrelu(parts, products, extra[0])
    elif config.kind == "on_lstm":
        new, cell_state, saved = on_lstm(parts, products, cell_state, columns, config)
        hidden = (new,)
    elif config.kind == "normalized_lstm":
        new, cell_state, saved = normalized_lstm(parts, products, cell_state, extra, columns, epsilon, config)
        hidden = (new,)
    elif config.kind == "normalized_goru":
        new, saved, product = normalized_goru(parts, products, hidden[0], extra, columns, epsilon, config)
        hidden = (new,)
    else:
        z = parts[0] + products[0]
        if config.kind == "modrelu":
            hidden, saved = (modrelu(z, extra[0]),), (z,)
        else:
            new = tanh(z) if config.kind == "rnn_tanh" else tl.where(z < 0, 0.0, z)  # a NaN stays a NaN
            hidden, saved = (new,), (new,)  # outputs may include zoneout
    return hidden, cell_state, saved, product


@triton.jit
def step_backward(d, dc, saved, product, hidden, cell_state, extra, columns, epsilon, config: tl.constexpr):
    """Return the gradients of what `step_forward` reads, given those of h and c after the step.

    Args:
        d, dc: A tuple of the rows of the gradient of h, and the gradient of c.
        saved, product: What `step_forward` has returned for it.
        hidden, cell_state: Before the step.
        extra, columns, epsilon, config: As for `step_forward`.

    Returns:
        The gradients of the parts, a tuple; of the last product, if `config.keeps_product`: those of the other products
        are those of the parts; of h, without the path through the products, a tuple; of c; and of the further
        parameters, a tuple of the terms of each row.
    """
    d_product = saved[0]
    d_extra = extra
    if config.kind == "lstm":
        d_parts, dc = lstm_backward(d[0], dc, saved, cell_state)
        d = (tl.zeros_like(d[0]),)
    elif config.kind == "gru":
        d_parts, d_product, d_hidden = gru_backward(d[0], saved, product, hidden[0])
        d = (d_hidden,)
        if config.extra > 0:
            d_extra = (d_product,)
    elif config.kind == "goru":
        d_parts, d_product, d_hidden, d_bias = goru_backward(d[0], saved, product, hidden[0], extra[0])
        d, d_extra = (d_hidden,), (d_bias,)
    elif config.kind == "complex_modrelu":
        d_parts, d_bias = complex_modrelu_backward(d, saved, extra[0])
        d, d_extra = (tl.zeros_like(d[0]), tl.zeros_like(d[1])), (d_bias,)
    elif config.kind == "on_lstm":
        d_parts, dc = on_lstm_backward(d[0], dc, saved, cell_state, columns, config)
        d = (tl.zeros_like(d[0]),)
    elif config.kind == "normalized_lstm":
        d_parts, dc, d_extra = normalized_lstm_backward(d[0], dc, saved, cell_state, extra, columns, epsilon, config)
        d = (tl.zeros_like(d[0]),)
    elif config.kind == "normalized_goru":
        d_parts, d_product, d_hidden, d_extra = normalized_goru_backward(
            d[0], saved, product, hidden[0], extra, columns, epsilon, config
        )
        d = (d_hidden,)
    else:
        z, of_h = saved[0], d[0]
        if config.kind == "modrelu":
            of_h, d_bias = modrelu_backward(of_h, z, extra[0])
            d_extra = (d_bias,)
        elif config.kind == "rnn_tanh":
            of_h *= 1.0 - z * z
        else:
            of_h = tl.where(z > 0, of_h, 0.0)
        d, d_parts = (tl.zeros_like(of_h),), (of_h,)
    return d_parts, d_product, d, dc, d_extra


@triton.jit
def load_parts(at, columns, valid, config: tl.constexpr):
    """Return the rows of P_t, or of products or gradients with its widths, zeros where not `valid`.

    `at` points to the first number of each row, () or (K, 1). Rows of one number for each chunk of units have it at
    each of these units.
    """
    count: tl.constexpr = len(config.widths)
    rows = ()
    for index in tl.static_range(count):
        place = columns // config.chunk if config.widths[index] < config.size else columns
        here = valid & (columns < config.size)
        rows += (tl.load(at + config.offsets[index] + place, mask=here, other=0.0),)
    return rows


@triton.jit
def store_parts(rows, at, columns, valid, config: tl.constexpr):
    """Store what `load_parts` returns; of a chunk, the number at its first unit."""
    count: tl.constexpr = len(config.widths)
    for index in tl.static_range(count):
        here, place = valid & (columns < config.size), columns
        if config.widths[index] < config.size:
            here, place = here & (columns % config.chunk == 0), columns // config.chunk
        tl.store(at + config.offsets[index] + place, rows[index], mask=here)


@triton.jit
def load_rows(at, columns, valid, count: tl.constexpr, size: tl.constexpr):
    """Return `count` rows of N numbers, one behind the other: h, or further parameters."""
    rows = ()
    for index in tl.static_range(count):
        rows += (tl.load(at + index * size + columns, mask=valid & (columns < size), other=0.0),)
    return rows


@triton.jit
def store_rows(rows, at, columns, valid, count: tl.constexpr, size: tl.constexpr):
    """Store what `load_rows` returns."""
    for index in tl.static_range(count):
        tl.store(at + index * size + columns, rows[index], mask=valid & (columns < size))


@triton.jit
def load_zoneout(at, mean, columns, valid, kind: tl.constexpr, count: tl.constexpr, size: tl.constexpr):
    """Return the factors of the old value, a tuple: rows of a mask, or the probability `mean`."""
    return load_rows(at, columns, valid, count, size) if kind == "mask" else (mean,) * count


@triton.jit
def zone_out(new, old, factors, kind: tl.constexpr, count: tl.constexpr):
    """Return rows after zoneout, a tuple."""
    rows = ()
    for index in tl.static_range(count):
        row = new[index]
        if kind != "none":
            row += factors[index] * (old[index] - row)
        rows += (row,)
    return rows


@triton.jit
def zone_out_backward(d, factors, kind: tl.constexpr, count: tl.constexpr):
    """Return the gradients of the new and of the old rows, two tuples, given that of the rows after zoneout."""
    new, old = (), ()
    for index in tl.static_range(count):
        direct = tl.zeros_like(d[index])
        if kind != "none":
            direct = factors[index] * d[index]
        new += (d[index] - direct,)
        old += (direct,)
    return new, old
