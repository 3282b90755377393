"""The recurrences of `gyral.ops.gated` in plain torch: the equations of each kind, and the loop over the steps.

The kernels compute the same as `gated`, which provides their second derivatives.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops import unitary
from gyral.ops.dropout import zoneout

State = tuple[Tensor, Tensor | None]


class Weights(NamedTuple):
    """The weights and options of a step; see `gyral.ops.gated.gated`."""

    kind: str
    w_hh: Tensor
    extra: Tensor | None
    partner: Tensor | None
    units: int
    chunk: int
    epsilon: float


def gated(
    kind: str,
    x: Tensor,
    w_ih: Tensor,
    b: Tensor | None,
    w_hh: Tensor,
    extra: Tensor | None,
    h0: Tensor,
    c0: Tensor | None,
    fresh: Tensor | None,
    keep: Tensor | None,
    keep_cell_state: Tensor | None,
    drop: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    partner: Tensor | None,
    units: int,
    chunk: int,
    epsilon: float,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run all steps; see `gyral.ops.gated.gated`."""
    b, extra = join_biases(kind, b, b_hh, extra, units)
    weights = Weights(kind, w_hh, extra, partner, units, chunk, epsilon)
    outputs, state = [], (h0, c0)
    for time, parts in enumerate(F.linear(x, w_ih, b).unbind(0)):
        active = None if lengths is None else (time < lengths).unsqueeze(1)
        before = state if starts is None else reset_state(starts[time], state, fresh)
        new = step(weights, parts, before, at(keep, time), at(keep_cell_state, time), drop)
        outputs.append(new[0] if active is None else torch.where(active, new[0], 0.0))
        state = new if active is None else choose(active, new, state)
    return torch.stack(outputs), *state


def join_biases(
    kind: str, b: Tensor | None, b_hh: Tensor | None, extra: Tensor | None, units: int
) -> tuple[Tensor | None, Tensor | None]:
    """Return `b` and `extra` that contain the bias of the recurrent product, if there is one."""
    if b is None or b_hh is None:
        return b, extra
    if kind != "gru":
        return b + b_hh, extra
    first, last = b.split_with_sizes((2 * units, units))
    first_hh, last_hh = b_hh.split_with_sizes((2 * units, units))
    return torch.cat((first + first_hh, last)), last_hh


def step(
    weights: Weights,
    parts: Tensor,
    state: State,
    keep: Tensor | None,
    keep_cell_state: Tensor | None,
    drop: Tensor | None,
) -> State:
    """Return h (B, H) and c (B, C) or None after a step.

    Args:
        weights: Weights and options.
        parts: P_t = W_ih x_t + b (B, G).
        state: h and c before the step.
        keep, keep_cell_state: Zoneout of h and c: None, a mask (B, H) or (B, C), or the probability ().
        drop: Factors (B, H) of h in the product, or None.
    """
    hidden, cell_state = state
    product = multiply(weights, hidden if drop is None else hidden * drop)
    new, new_cell_state = EQUATIONS[weights.kind](weights, parts, product, hidden, cell_state)
    new = new if keep is None else zoneout(new, hidden, keep)
    if cell_state is not None and new_cell_state is not None and keep_cell_state is not None:
        new_cell_state = zoneout(new_cell_state, cell_state, keep_cell_state)
    return new, new_cell_state


def at(keep: Tensor | None, time: int) -> Tensor | None:
    """Return zoneout at one step."""
    return keep[time] if keep is not None and keep.dim() > 0 else keep


def multiply(weights: Weights, hidden: Tensor) -> Tensor:
    """Return the products (B, R) of the recurrent matrix and hidden vectors (B, H)."""
    if weights.partner is None:
        return F.linear(hidden, weights.w_hh)
    own, other = weights.w_hh
    if weights.kind == "modrelu":
        return unitary.rotate(hidden, unitary.Rotations(own, other, weights.partner))
    own, other, hidden = (torch.complex(*values.chunk(2, dim=-1)) for values in (own, other, hidden))
    product = unitary.rotate(hidden, unitary.Rotations(own, other, weights.partner))
    return torch.cat((product.real, product.imag), dim=-1)


def choose(rows: Tensor, new: State, old: State) -> State:
    """Return the new state in the rows where the mask (B, 1) is True, and the old state in the other rows."""
    (hidden, cell_state), (old_hidden, old_cell_state) = new, old
    chosen = None if cell_state is None or old_cell_state is None else torch.where(rows, cell_state, old_cell_state)
    return torch.where(rows, hidden, old_hidden), chosen


def reset_state(starts: Tensor, state: State, fresh: Tensor | None) -> State:
    """Return the state with `fresh` (H,), or zeros, and c = 0 in the rows where `starts` (B,) is True."""
    hidden, cell_state = state
    rows = starts.unsqueeze(1)
    hidden = torch.where(rows, 0.0 if fresh is None else fresh, hidden)
    return hidden, None if cell_state is None else torch.where(rows, 0.0, cell_state)


def _added(parts: Tensor, product: Tensor) -> Tensor:
    """Return the parts with the product added to their first columns."""
    return parts + F.pad(product, (0, parts.shape[1] - product.shape[1]))


def _modrelu(weights: Weights, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None) -> tuple[Tensor, None]:
    assert weights.extra is not None
    return unitary.modrelu(parts + product, weights.extra), None


def _complex_modrelu(
    weights: Weights, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None
) -> tuple[Tensor, None]:
    assert weights.extra is not None
    return unitary.complex_modrelu(parts + product, weights.extra), None


def _goru(weights: Weights, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None) -> tuple[Tensor, None]:
    size = weights.units
    (gates, inputs), (to_gates, rotated) = (values.split((2 * size, size), dim=1) for values in (parts, product))
    assert weights.extra is not None
    bias, gates = weights.extra[:size], gates + to_gates
    if weights.kind == "normalized_goru":
        gains, biases = weights.extra[size:].chunk(2)
        normalized = F.layer_norm(gates.unflatten(1, (2, size)), (size,), eps=weights.epsilon).flatten(1)
        gates = normalized * gains + biases
    reset, update = torch.sigmoid(gates).chunk(2, dim=1)
    candidate = unitary.modrelu(inputs + reset * rotated, bias)
    return candidate + update * (hidden - candidate), None


def _gru(weights: Weights, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None) -> tuple[Tensor, None]:
    reset, update, inputs = parts.chunk(3, dim=1)
    to_reset, to_update, recurrent = product.chunk(3, dim=1)
    reset, update = torch.sigmoid(reset + to_reset), torch.sigmoid(update + to_update)
    candidate = torch.tanh(inputs + reset * (recurrent if weights.extra is None else recurrent + weights.extra))
    return candidate + update * (hidden - candidate), None


def _rnn_tanh(
    weights: Weights, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None
) -> tuple[Tensor, None]:
    return torch.tanh(parts + product), None


def _rnn_relu(
    weights: Weights, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None
) -> tuple[Tensor, None]:
    return torch.relu(parts + product), None


def _lstm(
    weights: Weights, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: Tensor
) -> tuple[Tensor, Tensor]:
    write, forget, candidate, output = (parts + product).chunk(4, dim=1)
    cell_state = forget.sigmoid() * cell_state + write.sigmoid() * candidate.tanh()
    return output.sigmoid() * cell_state.tanh(), cell_state


def _normalized_lstm(
    weights: Weights, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: Tensor
) -> tuple[Tensor, Tensor]:
    size = weights.units
    assert weights.extra is not None
    gains, biases, gain, bias = weights.extra.split((4 * size, 4 * size, size, size))
    gates = F.layer_norm((parts + product).unflatten(1, (4, size)), (size,), eps=weights.epsilon).flatten(1)
    write, forget, candidate, output = (gates * gains + biases).chunk(4, dim=1)
    cell_state = forget.sigmoid() * cell_state + write.sigmoid() * candidate.tanh()
    return output.sigmoid() * torch.tanh(F.layer_norm(cell_state, (size,), gain, bias, weights.epsilon)), cell_state


def _on_lstm(
    weights: Weights, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: Tensor
) -> tuple[Tensor, Tensor]:
    size = weights.units
    chunks = -(-size // weights.chunk)
    master_forget, past, forget, write, output, candidate = (parts + product).split(
        (chunks, chunks, size, size, size, size), dim=1
    )

    def master(gate: Tensor) -> Tensor:
        return gate.softmax(1).cumsum(1).repeat_interleave(weights.chunk, dim=1)[:, :size]

    rising, falling = master(master_forget), 1 - master(past)
    overlap = rising * falling
    forget = forget.sigmoid() * overlap + (rising - overlap)
    write = write.sigmoid() * overlap + (falling - overlap)
    cell_state = forget * cell_state + write * candidate.tanh()
    return output.sigmoid() * cell_state.tanh(), cell_state


# Each maps the weights, P_t, the product, h and c before the step to h and c after it, before zoneout.
EQUATIONS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "modrelu": _modrelu,
    "complex_modrelu": _complex_modrelu,
    "goru": _goru,
    "normalized_goru": _goru,
    "on_lstm": _on_lstm,
    "lstm": _lstm,
    "normalized_lstm": _normalized_lstm,
    "gru": _gru,
    "rnn_tanh": _rnn_tanh,
    "rnn_relu": _rnn_relu,
}
