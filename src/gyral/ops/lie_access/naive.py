"""A Lie-access memory with its controller in plain torch, for `gyral.ops.lie_access`.

The kernels compute the same as `lie_access`, which provides their second derivatives. Its memory is the list of all
vectors ever written, with a mask of those that a row still holds.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.lie_access import read
from gyral.ops.lie_access.groups import GROUPS, Group


class MemoryState(NamedTuple):
    """The state: vectors h and c (B, N) of the controller, and then as `gyral.cells.lantm.LANTMCell.State`."""

    hidden: Tensor
    cell_state: Tensor
    read_vector: Tensor
    read_key: Tensor
    read_step: Tensor
    write_key: Tensor
    write_step: Tensor
    keys: Tensor
    vectors: Tensor
    strengths: Tensor
    count: Tensor  # type: ignore[assignment]  # not the method of tuples

    def flatten(self) -> Tensor:
        """Return all vectors besides the memory in one row (B, D), in the order in which kernels store them."""
        return torch.cat((self.hidden, *self[2:7], self.cell_state), dim=1)

    @classmethod
    def of(cls, flat_state: Tensor, hidden_size: int, memory: tuple[Tensor, ...]) -> "MemoryState":
        """Return the state for a flat state and the leaves of the memory."""
        width = flat_state.shape[1] - 2 * hidden_size - 8
        hidden, *rest, cell_state = flat_state.split([hidden_size, width, 2, 2, 2, 2, hidden_size], dim=1)
        return cls(hidden, cell_state, *rest, *memory)


class Heads(NamedTuple):
    """The weights of controller and heads, the group and the weighting of a step; see `lie_access`."""

    w: Tensor
    head_weight: Tensor
    head_bias: Tensor
    width: int
    group: Group
    softmax: bool

    def outputs(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of both heads, (B, …): see `gyral.ops.lie_access.Weights`."""
        outputs = F.linear(hidden, self.head_weight, self.head_bias)
        return outputs.split([2, 1, 2, 1, 1, self.width, 2, 1, 2, 1, outputs.shape[1] - 13 - self.width], dim=1)


def lie_access(
    x: Tensor,
    w_ih: Tensor,
    b: Tensor | None,
    w: Tensor,
    head_weight: Tensor,
    head_bias: Tensor,
    flat_state: Tensor,
    keys: Tensor,
    vectors: Tensor,
    strengths: Tensor,
    fresh: Tensor | None,
    count: Tensor,
    write: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    group: str,
    normalizes: bool,
    softmax: bool,
    forget: int,
    read_first: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run all steps.

    Args:
        x: (T, B, X).
        w_ih, b: (4N, X), of the inputs, and (4N,) or None.
        w: (4N, N + W), of h and of the read vector.
        head_weight, head_bias: See `gyral.ops.lie_access.Weights`.
        flat_state, keys, vectors, strengths, count: The initial state; see `MemoryState`.
        fresh: The flat state (D,) to which `starts` resets rows, with an empty memory; or None.
        write, lengths, starts: See `gyral.ops.lie_access.lie_access`.
        group, normalizes, softmax, forget, read_first: See `gyral.ops.lie_access.Options`.

    Returns:
        outputs (T, B, N), and flat state, keys, vectors, strengths and count after the last step.
    """
    heads = Heads(w, head_weight, head_bias, vectors.shape[2], GROUPS[group](normalizes), softmax)
    capacity, hidden_size = keys.shape[1], len(w_ih) // 4
    memory = [keys, vectors, strengths]
    held = torch.arange(capacity, device=count.device) < count.unsqueeze(1)
    everywhere, outputs = torch.ones_like(count, dtype=torch.bool), []
    for time, parts in enumerate(F.linear(x, w_ih, b).unbind(0)):
        active = everywhere if lengths is None else time < lengths
        if starts is not None and fresh is not None:
            begins = (starts[time] & active).unsqueeze(1)
            flat_state, held = torch.where(begins, fresh, flat_state), held & ~begins
        allowed = active if write is None else active & write[time]
        full = allowed & (held.sum(1) >= capacity)
        held = held & ~(full.unsqueeze(1) & (held.cumsum(1) <= forget))
        before = torch.cat((held, torch.zeros_like(held[:, :1])), dim=1)
        held = torch.cat((held, allowed.unsqueeze(1)), dim=1)
        readable = before if read_first else held

        state = MemoryState.of(flat_state, hidden_size, (*memory, count))
        new, written = _move(heads, parts, allowed, state)
        memory = [torch.cat((old, entry.unsqueeze(1)), dim=1) for old, entry in zip(memory, written, strict=True)]
        new = new._replace(read_vector=_read(heads, new.read_key, memory, readable, heads.outputs(new.hidden)[-1]))
        outputs.append(torch.where(active.unsqueeze(1), new.hidden, 0.0))
        flat_state = torch.where(active.unsqueeze(1), new.flatten(), flat_state)
    kept = torch.argsort(~held, dim=1, stable=True)[:, :capacity]
    filled = torch.arange(capacity, device=count.device) < held.sum(1, keepdim=True)
    keys, vectors, strengths = (_select(leaf, kept, filled) for leaf in memory)
    return torch.stack(outputs), flat_state, keys, vectors, strengths, held.sum(1)


def _move(
    weights: Heads, parts: Tensor, allowed: Tensor, state: MemoryState
) -> tuple[MemoryState, tuple[Tensor, Tensor, Tensor]]:
    """Return the state after a step of the controller and the heads, and the key, vector and strength to be written."""
    product = F.linear(torch.cat((state.hidden, state.read_vector), dim=1), weights.w)
    write, forget, candidate, output = (parts + product).chunk(4, dim=1)
    cell_state = forget.sigmoid() * state.cell_state + write.sigmoid() * candidate.tanh()
    hidden = output.sigmoid() * cell_state.tanh()
    heads, group = weights.outputs(hidden), weights.group

    def move(emitted: tuple[Tensor, ...], key: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        raw_key, key_gate, raw_step, step_gate = emitted
        step = group.interpolate(step, group.element(raw_step), step_gate.sigmoid())
        return group.act(step, key + key_gate.sigmoid() * (group.point(raw_key) - key)), step

    moved, rows = move(heads[:4], state.write_key, state.write_step), allowed.unsqueeze(1)
    write_key = torch.where(rows, moved[0], state.write_key)
    write_step = torch.where(rows, moved[1], state.write_step)
    read_key, read_step = move(heads[6:10], state.read_key, state.read_step)
    new = MemoryState(hidden, cell_state, state.read_vector, read_key, read_step, write_key, write_step, *state[7:])
    return new, (write_key, heads[5].tanh(), heads[4].sigmoid().squeeze(1))


def _read(heads: Heads, key: Tensor, memory: list[Tensor], held: Tensor, temperature: Tensor) -> Tensor:
    """Return the read vector (B, W) at a key (B, 2)."""
    keys, vectors, strengths = memory
    distances = heads.group.squared_distance(key.unsqueeze(1), keys)
    strengths = torch.where(held, strengths, 0.0)
    if heads.softmax:
        temperature = F.softplus(temperature) + read.MIN_TEMPERATURE
        weights = read.softmax_weights(distances, strengths, temperature, held)
    else:
        weights = read.inverse_norm_weights(distances, strengths)
    return torch.bmm(read.normalize_weights(weights).unsqueeze(1), vectors).squeeze(1)


def _select(leaf: Tensor, slots: Tensor, filled: Tensor) -> Tensor:
    """Return the slots (B, C) of a leaf (B, S, …) of the memory, with zeros where the mask `filled` (B, C) is False."""
    shape = *slots.shape, *[1] * (leaf.dim() - 2)
    chosen = leaf.gather(1, slots.view(shape).expand(-1, -1, *leaf.shape[2:]))
    return torch.where(filled.view(shape), chosen, 0.0)
