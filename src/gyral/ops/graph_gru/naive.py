"""A GRU over typed edges in plain torch: the equations of `gyral.ops.graph_gru`, and the loop over the steps.

The kernels compute the same as `graph_gru`, which provides their second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def graph_gru(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b: Tensor | None,
    memory: Tensor,
    earlier: Tensor | None,
    lengths: Tensor | None,
    since: Tensor | None,
    first_size: int,
    edge_size: int | None,
    linked: bool,
    capacity: int,
) -> tuple[Tensor, Tensor]:
    """Run all steps; see `gyral.ops.graph_gru.graph_gru`.

    Args:
        x, w_ih, w_hh, b, memory: See there.
        earlier: (T, B, E, D) int64, or None: there are only edges to the next step.
        lengths: (B,) int64 in [1, T], or None.
        since: (T, B) int64: edges from before this step count as absent; negative ones are steps of the memory. Or
            None: nothing is out of reach.
        first_size: Width of the slice of type 0.
        edge_size: Width of the slice of each other type; None: every slice is the whole vector.
        linked: Whether the carried vector is the gathered one, not h_{t−1}.
        capacity: C'.
    """
    history = list(memory.unbind(1))  # h_{−C}, …, h_{t−1}
    count = len(history)
    for time, parts in enumerate(F.linear(x, w_ih, b).unbind(0)):
        past = torch.stack(history)
        reachable = None if since is None else count + since[time]
        previous = gather(past, torch.ones_like(parts[:, :1, None], dtype=torch.int64), reachable).squeeze(1)
        found = None if earlier is None else gather(past, earlier[time], reachable)
        gathered = concatenate(previous, found, first_size, edge_size)
        carried = F.pad(gathered, (0, past.shape[2] - gathered.shape[1])) if linked else previous
        hidden = step(parts, F.linear(gathered, w_hh), carried)
        if lengths is not None:
            hidden = torch.where((time < lengths).unsqueeze(1), hidden, 0.0)
        history.append(hidden)
    outputs = torch.stack(history[count:])
    return outputs, latest(memory, outputs, capacity, lengths, since)


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


def concatenate(previous: Tensor, linked: Tensor | None, first_size: int, edge_size: int | None) -> Tensor:
    """Return g_t (B, G): of each type, its slice of the vectors that the step gathers.

    Args:
        previous: h_{t−1} (B, N).
        linked: (B, E, N), one row for each type from 1, or None.
        first_size, edge_size: The widths of the slices.
    """
    slices = [previous[:, :first_size]]
    if linked is not None and edge_size is None:
        slices.append(linked.flatten(1))
    elif linked is not None and edge_size is not None:
        # (B, E, E, size): the slice of each type in each vector
        own = linked[..., first_size:].unflatten(2, (-1, edge_size))
        slices.append(own.diagonal(dim1=1, dim2=2).transpose(1, 2).flatten(1))
    return torch.cat(slices, dim=1)


def latest(
    memory: Tensor, outputs: Tensor, capacity: int, lengths: Tensor | None = None, since: Tensor | None = None
) -> Tensor:
    """Return the memory (B, C', N) after the last step of each sequence: its last C' hidden vectors, the latest last.

    Args:
        memory: (B, C, N), before the first step; what came before it is zeros.
        outputs: (T, B, N).
        capacity: C'.
        lengths, since: See `graph_gru`; hidden vectors from before the last start are zeros.
    """
    steps, batch, units = outputs.shape
    device = memory.device
    if memory.shape[1] < capacity:
        memory = F.pad(memory, (0, 0, capacity - memory.shape[1], 0))
    history = torch.cat((memory[:, memory.shape[1] - capacity :].transpose(0, 1), outputs))
    if lengths is None and since is None:
        return history[steps:].transpose(0, 1)
    if lengths is None:
        lengths = torch.full((batch,), steps, device=device)
    time = lengths.unsqueeze(1) + torch.arange(-capacity, 0, device=device)  # (B, C)
    rows = (time + capacity) * batch + torch.arange(batch, device=device).unsqueeze(1)
    found = history.flatten(0, 1).index_select(0, rows.flatten()).view(batch, capacity, units)
    if since is None:
        return found
    last = since.gather(0, lengths.unsqueeze(0) - 1).squeeze(0)
    return torch.where((time >= last.unsqueeze(1)).unsqueeze(2), found, 0.0)
