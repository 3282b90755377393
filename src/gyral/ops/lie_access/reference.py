"""A Lie-access memory with its controller in plain torch, for `gyral.ops.lie_access.run`.

The kernels compute the same; this code gives their second derivatives. Its memory is the list of all vectors ever
written, with a mask of those that a row still holds.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.lie_access import read
from gyral.ops.lie_access.arguments import FixedArguments, MemoryState, Options, Tensors


def run(fixed: FixedArguments, tensors: Tensors) -> list[Tensor]:
    """Run all steps; return outputs (T, B, N), and flat state, keys, vectors and strengths after the last step."""
    options, count, write, lengths, starts = fixed
    capacity, hidden_size = tensors.keys.shape[1], len(tensors.weight_x) // 4
    memory = [tensors.keys, tensors.vectors, tensors.strengths]
    held = torch.arange(capacity, device=count.device) < count.unsqueeze(1)
    everywhere, flat_state, outputs = torch.ones_like(count, dtype=torch.bool), tensors.flat_state, []
    for time, parts in enumerate(F.linear(tensors.inputs, tensors.weight_x, tensors.bias).unbind(0)):
        active = everywhere if lengths is None else time < lengths
        if starts is not None and tensors.fresh is not None:
            begins = (starts[time] & active).unsqueeze(1)
            flat_state, held = torch.where(begins, tensors.fresh, flat_state), held & ~begins
        allowed = active if write is None else active & write[time]
        full = allowed & (held.sum(1) >= capacity)
        held = held & ~(full.unsqueeze(1) & (held.cumsum(1) <= options.forget))
        held = torch.cat((held, allowed.unsqueeze(1)), dim=1)

        state = MemoryState.of(flat_state, hidden_size, (*memory, count))
        new, written = _move(tensors, options, parts, allowed, state)
        memory = [torch.cat((old, entry.unsqueeze(1)), dim=1) for old, entry in zip(memory, written, strict=True)]
        new = new._replace(read_vector=_read(options, new.read_key, memory, held, _heads(tensors, new.hidden)[-1]))
        outputs.append(torch.where(active.unsqueeze(1), new.hidden, 0.0))
        flat_state = torch.where(active.unsqueeze(1), new.flatten(), flat_state)
    kept = torch.argsort(~held, dim=1, stable=True)[:, :capacity]
    filled = torch.arange(capacity, device=count.device) < held.sum(1, keepdim=True)
    final = [_select(leaf, kept, filled) for leaf in memory]
    return [torch.stack(outputs), flat_state, *final]


def _heads(tensors: Tensors, hidden: Tensor) -> tuple[Tensor, ...]:
    """Return the outputs of both heads, (B, …): see `Weights`."""
    width = tensors.vectors.shape[2]
    outputs = F.linear(hidden, tensors.head_weight, tensors.head_bias)
    return outputs.split([2, 1, 2, 1, 1, width, 2, 1, 2, 1, outputs.shape[1] - 13 - width], dim=1)


def _move(
    tensors: Tensors, options: Options, parts: Tensor, allowed: Tensor, state: MemoryState
) -> tuple[MemoryState, tuple[Tensor, Tensor, Tensor]]:
    """Return the state after a step of the controller and the heads, and the key, vector and strength to be written."""
    product = F.linear(torch.cat((state.hidden, state.read_vector), dim=1), tensors.weight)
    write, forget, candidate, output = (parts + product).chunk(4, dim=1)
    cell_state = forget.sigmoid() * state.cell_state + write.sigmoid() * candidate.tanh()
    hidden = output.sigmoid() * cell_state.tanh()
    heads, group = _heads(tensors, hidden), options.group

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


def _read(options: Options, key: Tensor, memory: list[Tensor], held: Tensor, temperature: Tensor) -> Tensor:
    """Return the read vector (B, W) at a key (B, 2)."""
    keys, vectors, strengths = memory
    distances = options.group.squared_distance(key.unsqueeze(1), keys)
    strengths = torch.where(held, strengths, 0.0)
    if options.softmax:
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
