"""The recurrences of `gyral.ops.gated` in plain torch: the equations of each kind, and the loop over the steps.

The kernels compute the same; this code is the reference of their tests and gives their second derivatives.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops import unitary
from gyral.ops.gated.arguments import Arguments, FixedArguments, Tensors
from gyral.ops.zoneout import zoneout

State = tuple[Tensor, Tensor | None]


def of(fixed: FixedArguments) -> Callable[..., tuple[Tensor, Tensor, Tensor | None]]:
    """Return the sequence as a function of the fields of `Tensors`."""
    return partial(run, fixed)


def run(fixed: FixedArguments, *given: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run all steps; `given` are the fields of `Tensors`. See `gyral.ops.gated.run`."""
    tensors = Tensors(*given)  # type: ignore[arg-type]
    parts = F.linear(tensors.inputs, tensors.weight_ih, tensors.bias)
    weights: Any = {"weight_hh": tensors.weight_hh, "extra": tensors.extra, "fresh": tensors.fresh}
    arguments = Arguments(
        parts=parts, hidden=tensors.hidden, cell_state=tensors.cell_state, **weights, **fixed._asdict()
    )
    outputs = []
    state: State = tensors.hidden, tensors.cell_state
    for time, own in enumerate(parts.unbind(0)):
        output, state = step(arguments, time, own, state)
        outputs.append(output)
    return torch.stack(outputs), *state


def step(arguments: Arguments, time: int, parts: Tensor, state: State) -> tuple[Tensor, State]:
    """Take one step.

    Args:
        arguments: Weights and options; the parts and states in it are not read.
        time: t.
        parts: P_t (B, G).
        state: h (B, H) and c (B, C) or None before the step.

    Returns:
        The output (B, H), zero beyond the lengths, and the new state.
    """
    active = None if arguments.lengths is None else time < arguments.lengths
    if arguments.starts is not None:
        starts = arguments.starts[time]
        state = reset_state(starts if active is None else starts & active, state, arguments.fresh)
    hidden, cell_state = state
    product = multiply(arguments, hidden if arguments.drop is None else hidden * arguments.drop)
    new, new_cell_state = EQUATIONS[arguments.kind](arguments, parts, product, hidden, cell_state)
    new = _keep(new, hidden, arguments.keep, time)
    if cell_state is not None and new_cell_state is not None:
        new_cell_state = _keep(new_cell_state, cell_state, arguments.keep_cell_state, time)
    if active is None:
        return new, (new, new_cell_state)
    rows = active.unsqueeze(1)
    return torch.where(rows, new, 0.0), choose(rows, (new, new_cell_state), state)


def multiply(arguments: Arguments, hidden: Tensor) -> Tensor:
    """Return the products (B, R) of the recurrent matrix and hidden vectors (B, H)."""
    if arguments.partner is None:
        return F.linear(hidden, arguments.weight_hh)
    own, other = arguments.weight_hh
    if arguments.kind == "modrelu":
        return unitary.rotate(hidden, unitary.Rotations(own, other, arguments.partner))
    own, other, hidden = (torch.complex(*values.chunk(2, dim=-1)) for values in (own, other, hidden))
    product = unitary.rotate(hidden, unitary.Rotations(own, other, arguments.partner))
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


def _keep(new: Tensor, old: Tensor, keep: Tensor | float | None, time: int) -> Tensor:
    if keep is None:
        return new
    return zoneout(new, old, keep[time] if isinstance(keep, Tensor) else keep)


def _added(parts: Tensor, product: Tensor) -> Tensor:
    """Return the parts with the product added to their first columns."""
    return parts + F.pad(product, (0, parts.shape[1] - product.shape[1]))


def _modrelu(
    arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None
) -> tuple[Tensor, None]:
    assert arguments.extra is not None
    return unitary.modrelu(parts + product, arguments.extra), None


def _complex_modrelu(
    arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None
) -> tuple[Tensor, None]:
    assert arguments.extra is not None
    return unitary.complex_modrelu(parts + product, arguments.extra), None


def _goru(
    arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None
) -> tuple[Tensor, None]:
    reset, update, inputs = parts.chunk(3, dim=1)
    to_reset, to_update, rotated = product.chunk(3, dim=1)
    reset, update = torch.sigmoid(reset + to_reset), torch.sigmoid(update + to_update)
    assert arguments.extra is not None
    candidate = unitary.modrelu(inputs + reset * rotated, arguments.extra)
    return candidate + update * (hidden - candidate), None


def _gru(arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None) -> tuple[Tensor, None]:
    reset, update, inputs = parts.chunk(3, dim=1)
    to_reset, to_update, recurrent = product.chunk(3, dim=1)
    reset, update = torch.sigmoid(reset + to_reset), torch.sigmoid(update + to_update)
    candidate = torch.tanh(inputs + reset * (recurrent if arguments.extra is None else recurrent + arguments.extra))
    return candidate + update * (hidden - candidate), None


def _rnn_tanh(
    arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None
) -> tuple[Tensor, None]:
    return torch.tanh(parts + product), None


def _rnn_relu(
    arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: None
) -> tuple[Tensor, None]:
    return torch.relu(parts + product), None


def _lstm(
    arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: Tensor
) -> tuple[Tensor, Tensor]:
    write, forget, candidate, output = (parts + product).chunk(4, dim=1)
    cell_state = forget.sigmoid() * cell_state + write.sigmoid() * candidate.tanh()
    return output.sigmoid() * cell_state.tanh(), cell_state


def _normalized_lstm(
    arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: Tensor
) -> tuple[Tensor, Tensor]:
    size = arguments.units
    assert arguments.extra is not None
    gains, biases, gain, bias = arguments.extra.split((4 * size, 4 * size, size, size))
    gates = F.layer_norm((parts + product).unflatten(1, (4, size)), (size,), eps=arguments.epsilon).flatten(1)
    write, forget, candidate, output = (gates * gains + biases).chunk(4, dim=1)
    cell_state = forget.sigmoid() * cell_state + write.sigmoid() * candidate.tanh()
    return output.sigmoid() * torch.tanh(F.layer_norm(cell_state, (size,), gain, bias, arguments.epsilon)), cell_state


def _on_lstm(
    arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: Tensor
) -> tuple[Tensor, Tensor]:
    size = arguments.units
    chunks = -(-size // arguments.chunk)
    master_forget, past, forget, write, output, candidate = (parts + product).split(
        (chunks, chunks, size, size, size, size), dim=1
    )

    def master(gate: Tensor) -> Tensor:
        return gate.softmax(1).cumsum(1).repeat_interleave(arguments.chunk, dim=1)[:, :size]

    rising, falling = master(master_forget), 1 - master(past)
    overlap = rising * falling
    forget = forget.sigmoid() * overlap + (rising - overlap)
    write = write.sigmoid() * overlap + (falling - overlap)
    cell_state = forget * cell_state + write * candidate.tanh()
    return output.sigmoid() * cell_state.tanh(), cell_state


def _weinet(
    arguments: Arguments, parts: Tensor, product: Tensor, hidden: Tensor, cell_state: Tensor
) -> tuple[Tensor, Tensor]:
    size = arguments.units
    gates, value, key, candidate = _added(parts, product).split((4 * size, size, size, size), dim=1)
    forget, forget_column, write, write_column = gates.sigmoid().chunk(4, dim=1)
    memory = cell_state.unflatten(1, (size, size)) * (forget.unsqueeze(2) * forget_column.unsqueeze(1))
    memory = memory + (write * value).unsqueeze(2) * (write_column * key).unsqueeze(1)
    summed = candidate + torch.bmm(memory, hidden.unsqueeze(2)).squeeze(2)
    if arguments.extra is not None:
        gain, bias = arguments.extra
        summed = F.layer_norm(summed, (size,), gain, bias, arguments.epsilon)
    return torch.tanh(summed), memory.flatten(1)


# Each maps the arguments, P_t, the product, h and c before the step to h and c after it, before zoneout.
EQUATIONS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "modrelu": _modrelu,
    "complex_modrelu": _complex_modrelu,
    "goru": _goru,
    "on_lstm": _on_lstm,
    "weinet": _weinet,
    "lstm": _lstm,
    "normalized_lstm": _normalized_lstm,
    "gru": _gru,
    "rnn_tanh": _rnn_tanh,
    "rnn_relu": _rnn_relu,
}
