"""The functions of the rows of a step for kinds with sums over the units; see `gyral.ops.gated.triton.step`."""

import triton
import triton.language as tl

from gyral.ops.gated.triton.kinds import modrelu, modrelu_backward
from gyral.ops.triton.rows import add_2, add_4, normalize, sigmoid, tanh, totals_2

_ALL = tl.constexpr(tl.PropagateNan.ALL)

# Layer normalization of several rows at once: threads exchange the values of all of them together.


@triton.jit
def add_8(a, b, c, d, e, f, g, h, other_a, other_b, other_c, other_d, other_e, other_f, other_g, other_h):
    a, b, c, d = a + other_a, b + other_b, c + other_c, d + other_d
    return a, b, c, d, e + other_e, f + other_f, g + other_g, h + other_h


@triton.jit
def totals_4(a, b, c, d):
    return tl.reduce((a, b, c, d), len(a.shape) - 1, add_4, keep_dims=len(a.shape) > 1)


@triton.jit
def totals_8(a, b, c, d, e, f, g, h):
    return tl.reduce((a, b, c, d, e, f, g, h), len(a.shape) - 1, add_8, keep_dims=len(a.shape) > 1)


@triton.jit
def scale_of(square, epsilon, size: tl.constexpr):
    """Return the reciprocal of the standard deviation, given the sum of the squares of centred numbers."""
    return 1.0 / tl.sqrt_rn(square / size + epsilon)


@triton.jit
def normalize_2(a, b, columns, epsilon, size: tl.constexpr):
    """Return two rows with mean 0 and variance 1, and the reciprocals of their standard deviations."""
    inside = columns < size
    mean_a, mean_b = totals_2(a, b)
    a, b = tl.where(inside, a - mean_a / size, 0.0), tl.where(inside, b - mean_b / size, 0.0)
    square_a, square_b = totals_2(a * a, b * b)
    scale_a, scale_b = scale_of(square_a, epsilon, size), scale_of(square_b, epsilon, size)
    return a * scale_a, b * scale_b, scale_a, scale_b


@triton.jit
def normalize_4(a, b, c, d, columns, epsilon, size: tl.constexpr):
    """Return four rows with mean 0 and variance 1, and the reciprocals of their standard deviations."""
    inside = columns < size
    mean_a, mean_b, mean_c, mean_d = totals_4(a, b, c, d)
    a, b = tl.where(inside, a - mean_a / size, 0.0), tl.where(inside, b - mean_b / size, 0.0)
    c, d = tl.where(inside, c - mean_c / size, 0.0), tl.where(inside, d - mean_d / size, 0.0)
    square_a, square_b, square_c, square_d = totals_4(a * a, b * b, c * c, d * d)
    scale_a, scale_b = scale_of(square_a, epsilon, size), scale_of(square_b, epsilon, size)
    scale_c, scale_d = scale_of(square_c, epsilon, size), scale_of(square_d, epsilon, size)
    return a * scale_a, b * scale_b, c * scale_c, d * scale_d, scale_a, scale_b, scale_c, scale_d


@triton.jit
def before_normalization(d, normal, mean, along, scale, columns, size: tl.constexpr):
    """Return the gradient of what is normalized, given that of the result, `d`, and the sums of d and d · normal."""
    return tl.where(columns < size, scale * (d - mean / size - normal * (along / size)), 0.0)


@triton.jit
def normalized_lstm(parts, products, cell_state, extra, columns, epsilon, config: tl.constexpr):
    saved = parts[0] + products[0], parts[1] + products[1], parts[2] + products[2], parts[3] + products[3]
    size: tl.constexpr = config.size
    write, forget, candidate, out, _, _, _, _ = normalize_4(
        saved[0], saved[1], saved[2], saved[3], columns, epsilon, size
    )
    write, forget = sigmoid(write * extra[0] + extra[4]), sigmoid(forget * extra[1] + extra[5])
    candidate, out = tanh(candidate * extra[2] + extra[6]), sigmoid(out * extra[3] + extra[7])
    cell_state = forget * cell_state + write * candidate
    normal, _ = normalize(cell_state, epsilon, columns, size)
    return out * tanh(normal * extra[8] + extra[9]), cell_state, saved


@triton.jit
def normalized_lstm_backward(d, dc, saved, cell_state, extra, columns, epsilon, config: tl.constexpr):
    size: tl.constexpr = config.size
    n_write, n_forget, n_candidate, n_out, scale_write, scale_forget, scale_candidate, scale_out = normalize_4(
        saved[0], saved[1], saved[2], saved[3], columns, epsilon, size
    )
    write, forget = sigmoid(n_write * extra[0] + extra[4]), sigmoid(n_forget * extra[1] + extra[5])
    candidate, out = tanh(n_candidate * extra[2] + extra[6]), sigmoid(n_out * extra[3] + extra[7])
    normal, scale = normalize(forget * cell_state + write * candidate, epsilon, columns, size)
    squashed = tanh(normal * extra[8] + extra[9])
    d_out = d * squashed * out * (1.0 - out)
    d_bias = d * out * (1.0 - squashed * squashed)
    d_gain, d_normal = d_bias * normal, d_bias * extra[8]
    mean, along = totals_2(d_normal, d_normal * normal)
    dc += before_normalization(d_normal, normal, mean, along, scale, columns, size)
    d_write, d_forget = dc * candidate * write * (1.0 - write), dc * cell_state * forget * (1.0 - forget)
    d_candidate = dc * write * (1.0 - candidate * candidate)
    d_extra = (
        d_write * n_write, d_forget * n_forget, d_candidate * n_candidate, d_out * n_out,
        d_write, d_forget, d_candidate, d_out, d_gain, d_bias,
    )  # fmt: skip
    dn_write, dn_forget = d_write * extra[0], d_forget * extra[1]
    dn_candidate, dn_out = d_candidate * extra[2], d_out * extra[3]
    mean_write, mean_forget, mean_candidate, mean_out, along_write, along_forget, along_candidate, along_out = totals_8(
        dn_write, dn_forget, dn_candidate, dn_out,
        dn_write * n_write, dn_forget * n_forget, dn_candidate * n_candidate, dn_out * n_out,
    )  # fmt: skip
    d_write = before_normalization(dn_write, n_write, mean_write, along_write, scale_write, columns, size)
    d_forget = before_normalization(dn_forget, n_forget, mean_forget, along_forget, scale_forget, columns, size)
    d_candidate = before_normalization(
        dn_candidate, n_candidate, mean_candidate, along_candidate, scale_candidate, columns, size
    )
    d_out = before_normalization(dn_out, n_out, mean_out, along_out, scale_out, columns, size)
    return (d_write, d_forget, d_candidate, d_out), dc * forget, d_extra


@triton.jit
def normalized_goru(parts, products, hidden, extra, columns, epsilon, config: tl.constexpr):
    to_reset, to_update = parts[0] + products[0], parts[1] + products[1]
    reset, update, _, _ = normalize_2(to_reset, to_update, columns, epsilon, config.size)
    reset, update = sigmoid(reset * extra[1] + extra[3]), sigmoid(update * extra[2] + extra[4])
    z = parts[2] + reset * products[2]
    candidate = modrelu(z, extra[0])
    return candidate + update * (hidden - candidate), (to_reset, to_update, z), products[2]


@triton.jit
def normalized_goru_backward(d, saved, product, hidden, extra, columns, epsilon, config: tl.constexpr):
    size: tl.constexpr = config.size
    n_reset, n_update, scale_reset, scale_update = normalize_2(saved[0], saved[1], columns, epsilon, size)
    reset, update = sigmoid(n_reset * extra[1] + extra[3]), sigmoid(n_update * extra[2] + extra[4])
    z = saved[2]
    dz, d_bias = modrelu_backward(d * (1.0 - update), z, extra[0])
    d_update = d * (hidden - modrelu(z, extra[0])) * update * (1.0 - update)
    d_reset = dz * product * reset * (1.0 - reset)
    d_extra = d_bias, d_reset * n_reset, d_update * n_update, d_reset, d_update
    dn_reset, dn_update = d_reset * extra[1], d_update * extra[2]
    mean_reset, mean_update, along_reset, along_update = totals_4(
        dn_reset, dn_update, dn_reset * n_reset, dn_update * n_update
    )
    d_reset = before_normalization(dn_reset, n_reset, mean_reset, along_reset, scale_reset, columns, size)
    d_update = before_normalization(dn_update, n_update, mean_update, along_update, scale_update, columns, size)
    return (d_reset, d_update, dz), dz * reset, d * update, d_extra


# The rows of the master gates of on_lstm have the number of a chunk at each of its units; the first one of a chunk, its
# head, stands for it in sums over the chunks.


@triton.jit
def largest_2(a, b, other_a, other_b):
    return tl.maximum(a, other_a, propagate_nan=_ALL), tl.maximum(b, other_b, propagate_nan=_ALL)


@triton.jit
def heads_of(columns, config: tl.constexpr):
    """Return whether columns are the first ones of a chunk."""
    return (columns < config.size) & (columns % config.chunk == 0)


@triton.jit
def softmax_2(a, b, heads):
    """Return the softmax over chunks of two rows."""
    axis: tl.constexpr = len(a.shape) - 1
    lowest = tl.where(heads, a, float("-inf")), tl.where(heads, b, float("-inf"))
    largest_a, largest_b = tl.reduce(lowest, axis, largest_2, keep_dims=axis > 0)
    a = tl.exp(tl.minimum(a - largest_a, 0.0, propagate_nan=_ALL))
    b = tl.exp(tl.minimum(b - largest_b, 0.0, propagate_nan=_ALL))
    sum_a, sum_b = totals_2(tl.where(heads, a, 0.0), tl.where(heads, b, 0.0))
    return a / sum_a, b / sum_b


@triton.jit
def masters(rising, closing, heads):
    """Return the overlap of the master gates, and what either has beyond it, given their softmaxes over chunks."""
    given = tl.where(heads, rising, 0.0), tl.where(heads, closing, 0.0)
    rising, closed = tl.associative_scan(given, len(rising.shape) - 1, add_2)
    both = rising * (1.0 - closed)
    return both, rising - both, 1.0 - closed - both, rising, closed


@triton.jit
def on_lstm(parts, products, cell_state, columns, config: tl.constexpr):
    heads = heads_of(columns, config)
    rising, closing = softmax_2(parts[0] + products[0], parts[1] + products[1], heads)
    both, kept, new, _, _ = masters(rising, closing, heads)
    forget, write = sigmoid(parts[2] + products[2]), sigmoid(parts[3] + products[3])
    out, candidate = sigmoid(parts[4] + products[4]), tanh(parts[5] + products[5])
    cell_state = (forget * both + kept) * cell_state + (write * both + new) * candidate
    return out * tanh(cell_state), cell_state, (rising, closing, forget, write, out, candidate)


@triton.jit
def on_lstm_backward(d, dc, saved, cell_state, columns, config: tl.constexpr):
    chosen, closing, forget, write, out, candidate = saved
    heads = heads_of(columns, config)
    both, kept, new, rising, closed = masters(chosen, closing, heads)
    old, fresh = forget * both + kept, write * both + new
    squashed = tanh(old * cell_state + fresh * candidate)  # the cell state after the step may include zoneout
    dc += d * out * (1.0 - squashed * squashed)
    d_kept, d_new = dc * cell_state, dc * candidate
    direct = d_kept * (forget - 1.0) + d_new * (write - 1.0)
    d_rising, d_closed = direct * (1.0 - closed) + d_kept, -direct * rising - d_new
    # of a cumulative sum: the sums from a chunk on
    all_rising, all_closed = totals_2(d_rising, d_closed)
    until_rising, until_closed = tl.associative_scan((d_rising, d_closed), len(d.shape) - 1, add_2)
    d_rising, d_closed = all_rising - until_rising + d_rising, all_closed - until_closed + d_closed
    chosen, closing = tl.where(heads, chosen, 0.0), tl.where(heads, closing, 0.0)
    along_rising, along_closed = totals_2(chosen * d_rising, closing * d_closed)
    d_masters = chosen * (d_rising - along_rising), closing * (d_closed - along_closed)
    d_forget, d_write = d_kept * both * forget * (1.0 - forget), d_new * both * write * (1.0 - write)
    d_out, d_candidate = d * squashed * out * (1.0 - out), dc * fresh * (1.0 - candidate * candidate)
    return (d_masters[0], d_masters[1], d_forget, d_write, d_out, d_candidate), dc * old
