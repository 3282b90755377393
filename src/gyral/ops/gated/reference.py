"""The recurrences of `gyral.ops.gated` in plain torch: the equations of each kind, and the loop over the steps.

The kernels compute the same; this twin is the reference of their tests and gives their second derivatives.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops import unitary
from gyral.ops.gated.problem import Constants, Problem, Tensors
from gyral.ops.zoneout import zoneout

State = tuple[Tensor, Tensor | None]


def of(constants: Constants) -> Callable[..., tuple[Tensor, Tensor, Tensor | None]]:
    """Return the sequence as a function of the fields of `Tensors`."""
    return partial(run, constants)


def run(constants: Constants, *given: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run all steps; `given` are the fields of `Tensors`. See `gyral.ops.gated.run`."""
    tensors = Tensors(*given)  # type: ignore[arg-type]
    parts = F.linear(tensors.inputs, tensors.weight_ih, tensors.bias)
    weights: Any = {"weight_hh": tensors.weight_hh, "extra": tensors.extra, "fresh": tensors.fresh}
    problem = Problem(parts=parts, hidden=tensors.hidden, cell=tensors.cell, **weights, **constants._asdict())
    outputs = []
    state: State = tensors.hidden, tensors.cell
    for time, own in enumerate(parts.unbind(0)):
        output, state = step(problem, time, own, state)
        outputs.append(output)
    return torch.stack(outputs), *state


def step(problem: Problem, time: int, parts: Tensor, state: State) -> tuple[Tensor, State]:
    """Take one step.

    Args:
        problem: Weights and options; the parts and states in it are not read.
        time: t.
        parts: P_t (B, G).
        state: h (B, H) and c (B, C) or None before the step.

    Returns:
        The output (B, H), zero beyond the lengths, and the new state.
    """
    active = None if problem.lengths is None else time < problem.lengths
    if problem.starts is not None:
        starts = problem.starts[time]
        state = begin_anew(starts if active is None else starts & active, state, problem.fresh)
    hidden, cell = state
    product = multiply(problem, hidden if problem.drop is None else hidden * problem.drop)
    new, new_cell = EQUATIONS[problem.kind](problem, parts, product, hidden, cell)
    new = _keep(new, hidden, problem.keep, time)
    if cell is not None and new_cell is not None:
        new_cell = _keep(new_cell, cell, problem.keep_cell, time)
    if active is None:
        return new, (new, new_cell)
    rows = active.unsqueeze(1)
    return torch.where(rows, new, 0.0), choose(rows, (new, new_cell), state)


def multiply(problem: Problem, hidden: Tensor) -> Tensor:
    """Return the products (B, R) of the recurrent matrix and hidden vectors (B, H)."""
    if problem.partner is None:
        return F.linear(hidden, problem.weight_hh)
    own, other = problem.weight_hh
    if problem.kind == "modrelu":
        return unitary.rotate(hidden, unitary.Rotations(own, other, problem.partner))
    own, other, hidden = (torch.complex(*values.chunk(2, dim=-1)) for values in (own, other, hidden))
    product = unitary.rotate(hidden, unitary.Rotations(own, other, problem.partner))
    return torch.cat((product.real, product.imag), dim=-1)


def choose(rows: Tensor, new: State, old: State) -> State:
    """Return the new state in the rows where the mask (B, 1) is True, and the old state in the other rows."""
    (hidden, cell), (old_hidden, old_cell) = new, old
    chosen = None if cell is None or old_cell is None else torch.where(rows, cell, old_cell)
    return torch.where(rows, hidden, old_hidden), chosen


def begin_anew(starts: Tensor, state: State, fresh: Tensor | None) -> State:
    """Return the state with `fresh` (H,), or zeros, and c = 0 in the rows where `starts` (B,) is True."""
    hidden, cell = state
    rows = starts.unsqueeze(1)
    hidden = torch.where(rows, 0.0 if fresh is None else fresh, hidden)
    return hidden, None if cell is None else torch.where(rows, 0.0, cell)


def _keep(new: Tensor, old: Tensor, keep: Tensor | float | None, time: int) -> Tensor:
    if keep is None:
        return new
    return zoneout(new, old, keep[time] if isinstance(keep, Tensor) else keep)


def _added(parts: Tensor, product: Tensor) -> Tensor:
    """Return the parts with the product added to their first columns."""
    return parts + F.pad(product, (0, parts.shape[1] - product.shape[1]))


def _modrelu(problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None]:
    assert problem.extra is not None
    return unitary.modrelu(parts + product, problem.extra), None


def _complex_modrelu(
    problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: None
) -> tuple[Tensor, None]:
    assert problem.extra is not None
    return unitary.complex_modrelu(parts + product, problem.extra), None


def _goru(problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None]:
    reset, update, inputs = parts.chunk(3, dim=1)
    to_reset, to_update, rotated = product.chunk(3, dim=1)
    reset, update = torch.sigmoid(reset + to_reset), torch.sigmoid(update + to_update)
    assert problem.extra is not None
    candidate = unitary.modrelu(inputs + reset * rotated, problem.extra)
    return candidate + update * (hidden - candidate), None


def _gru(problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None]:
    reset, update, inputs = parts.chunk(3, dim=1)
    to_reset, to_update, recurrent = product.chunk(3, dim=1)
    reset, update = torch.sigmoid(reset + to_reset), torch.sigmoid(update + to_update)
    candidate = torch.tanh(inputs + reset * (recurrent if problem.extra is None else recurrent + problem.extra))
    return candidate + update * (hidden - candidate), None


def _rnn_tanh(problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None]:
    return torch.tanh(parts + product), None


def _rnn_relu(problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None]:
    return torch.relu(parts + product), None


def _lstm(problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    write, forget, candidate, output = (parts + product).chunk(4, dim=1)
    cell = forget.sigmoid() * cell + write.sigmoid() * candidate.tanh()
    return output.sigmoid() * cell.tanh(), cell


def _normalized_lstm(
    problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor]:
    size = problem.units
    assert problem.extra is not None
    gains, biases, gain, bias = problem.extra.split((4 * size, 4 * size, size, size))
    gates = F.layer_norm((parts + product).unflatten(1, (4, size)), (size,), eps=problem.epsilon).flatten(1)
    write, forget, candidate, output = (gates * gains + biases).chunk(4, dim=1)
    cell = forget.sigmoid() * cell + write.sigmoid() * candidate.tanh()
    return output.sigmoid() * torch.tanh(F.layer_norm(cell, (size,), gain, bias, problem.epsilon)), cell


def _on_lstm(problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    size = problem.units
    chunks = -(-size // problem.chunk)
    master_forget, past, forget, write, output, candidate = (parts + product).split(
        (chunks, chunks, size, size, size, size), dim=1
    )

    def master(gate: Tensor) -> Tensor:
        return gate.softmax(1).cumsum(1).repeat_interleave(problem.chunk, dim=1)[:, :size]

    rising, falling = master(master_forget), 1 - master(past)
    overlap = rising * falling
    forget = forget.sigmoid() * overlap + (rising - overlap)
    write = write.sigmoid() * overlap + (falling - overlap)
    cell = forget * cell + write * candidate.tanh()
    return output.sigmoid() * cell.tanh(), cell


def _weinet(problem: Problem, parts: Tensor, product: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    size = problem.units
    gates, value, key, candidate = _added(parts, product).split((4 * size, size, size, size), dim=1)
    forget, forget_column, write, write_column = gates.sigmoid().chunk(4, dim=1)
    memory = cell.unflatten(1, (size, size)) * (forget.unsqueeze(2) * forget_column.unsqueeze(1))
    memory = memory + (write * value).unsqueeze(2) * (write_column * key).unsqueeze(1)
    summed = candidate + torch.bmm(memory, hidden.unsqueeze(2)).squeeze(2)
    if problem.extra is not None:
        gain, bias = problem.extra
        summed = F.layer_norm(summed, (size,), gain, bias, problem.epsilon)
    return torch.tanh(summed), memory.flatten(1)


# Functions of the problem, P_t, the product, h and c before the step; they return h and c after it, before zoneout.
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
