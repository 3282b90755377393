"""A GRU over typed edges in plain torch: the equations of `gyral.ops.graph_gru.run`, and the loop over the steps.

The kernels compute the same; this code is the reference of their tests and gives their second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.graph_gru.arguments import FixedArguments, Tensors, latest


def run(fixed: FixedArguments, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """Run all steps; return the outputs (T, B, N), zero beyond the lengths, and the memory (B, C', N)."""
    parts = F.linear(tensors.inputs, tensors.weight_ih, tensors.bias)
    history = list(tensors.memory.unbind(1))  # h_{−C}, …, h_{t−1}
    capacity = len(history)
    for time, own in enumerate(parts.unbind(0)):
        past = torch.stack(history)
        since = None if fixed.since is None else capacity + fixed.since[time]
        previous = gather(past, torch.ones_like(own[:, :1, None], dtype=torch.int64), since).squeeze(1)
        linked = None if fixed.earlier is None else gather(past, fixed.earlier[time], since)
        gathered = concatenate(previous, linked, fixed)
        carried = F.pad(gathered, (0, past.shape[2] - gathered.shape[1])) if fixed.linked else previous
        hidden = step(own, F.linear(gathered, tensors.weight_hh), carried)
        if fixed.lengths is not None:
            hidden = torch.where((time < fixed.lengths).unsqueeze(1), hidden, 0.0)
        history.append(hidden)
    outputs = torch.stack(history[capacity:])
    return outputs, latest(tensors.memory, outputs, fixed.capacity, fixed.lengths, fixed.since)


def step(parts: Tensor, product: Tensor, carried: Tensor) -> Tensor:
    """Return h_t (B, N), given p_t (B, 3N), q_t (B, 3N) and c_t (B, N)."""
    (reset, update, candidate), (to_reset, to_update, recurrent) = parts.chunk(3, dim=1), product.chunk(3, dim=1)
    reset, update = torch.sigmoid(reset + to_reset), torch.sigmoid(update + to_update)
    candidate = torch.tanh(candidate + reset * recurrent)
    return candidate + update * (carried - candidate)


def gather(past: Tensor, distances: Tensor, since: Tensor | None = None) -> Tensor:
    """Return the sum (B, E, N) over D of the hidden vectors at some distances; zeros where there is no edge.

    Args:
        past: (C + t, B, N), the hidden vectors of all steps before step t, the latest last.
        distances: (B, E, D) int64; 0 or one from before the first of these steps: no edge.
        since: (B,) int64: edges from before this one of these steps count as absent. Or None.
    """
    count, rows, _ = past.shape
    position = count - distances
    present = (distances > 0) & (position >= 0)
    if since is not None:
        present = present & (position >= since.view(-1, 1, 1))
    row = torch.arange(rows, device=past.device).view(-1, 1, 1)
    found = past[position.clamp(0, count - 1), row]
    return torch.where(present.unsqueeze(3), found, 0.0).sum(2)


def concatenate(previous: Tensor, linked: Tensor | None, fixed: FixedArguments) -> Tensor:
    """Return g_t (B, G): of each type, its slice of the vectors that the step gathers.

    Args:
        previous: h_{t−1} (B, N).
        linked: (B, E, N), one row for each type from 1, or None.
        fixed: The widths of the slices.
    """
    first, size = fixed.first_size, fixed.edge_size
    slices = [previous[:, :first]]
    if linked is not None and size is None:
        slices.append(linked.flatten(1))
    elif linked is not None and size is not None:
        own = linked[..., first:].unflatten(2, (-1, size))  # (B, E, E, size): the slice of each type in each vector
        slices.append(own.diagonal(dim1=1, dim2=2).transpose(1, 2).flatten(1))
    return torch.cat(slices, dim=1)
