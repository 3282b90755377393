"""Arguments of a layer besides its inputs: different lengths, resets of the state, and edges between steps."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gyral.cells.base import RecurrentCell
from gyral.cells.graph import DEFAULT_CAPACITY, GraphCell
from gyral.cells.inputs import LinkedInputs
from gyral.nn.recurrent import Recurrent

KINDS = ("whole", "ragged", "resets", "edges")
RESET_SHARE = 0.01  # of all steps
EDGE_TYPES = 8  # that are drawn; a cell with fewer types gets the first ones


class Sequences(NamedTuple):
    """Arguments of a layer besides its inputs.

    Attributes:
        lengths: (B,), or None if all sequences have T steps.
        starts: (T, B), True where a row's state is reset, or None.
        edges: (T, B, EDGE_TYPES, 1), distances to earlier steps, see `gyral.core.edges.Edges`, or None.
    """

    lengths: Tensor | None = None
    starts: Tensor | None = None
    edges: Tensor | None = None

    def to(self, device: torch.device) -> "Sequences":
        """Return the same on a device."""
        return Sequences(*(None if tensor is None else tensor.to(device) for tensor in self))


WHOLE = Sequences()


def draw(kind: str, steps: int, batch: int) -> Sequences:
    """Return lengths evenly spread over 1 … T for "ragged", starts at 1 % of the steps for "resets".

    For "edges" every step but the first has an edge of each type, from any of the last 100 steps.
    """
    random = torch.Generator().manual_seed(0)
    if kind == "ragged":
        lengths = torch.linspace(1, steps, batch).round().long()
        return Sequences(lengths=lengths[torch.randperm(batch, generator=random)])
    if kind == "resets":
        return Sequences(starts=torch.rand(steps, batch, generator=random) < RESET_SHARE)
    if kind == "edges":
        reach = torch.arange(steps).clamp(max=DEFAULT_CAPACITY).view(-1, 1, 1, 1)
        distances = 1 + (torch.rand(steps, batch, EDGE_TYPES, 1, generator=random) * reach).long()
        return Sequences(edges=distances.minimum(reach))
    return WHOLE


def supports(module: nn.Module, kind: str) -> bool:
    """Return whether a module supports such sequences: torch's layers have no resets, and few cells read edges."""
    if kind not in ("resets", "edges"):
        return True
    if not isinstance(module, Recurrent):
        return False
    cell = module.cells[0]
    assert isinstance(cell, RecurrentCell)
    if kind == "edges":
        return isinstance(cell, GraphCell) and cell.edge_types <= EDGE_TYPES
    return module.requested_backend != "fused" or cell.fused_unsupported_reason(starts=True) is None


def call(module: nn.Module, inputs: Tensor, state: object, sequences: Sequences) -> tuple[Tensor, object]:
    """Return the outputs and state of a `Recurrent` or a layer of torch.nn for inputs (T, B, X).

    For different lengths a layer of torch.nn gets a `PackedSequence`; packing and padding are part of the call.
    """
    if isinstance(module, Recurrent):
        lengths, starts, edges = sequences
        cell = module.cells[0]
        if edges is not None and isinstance(cell, GraphCell):
            edges = edges[: len(inputs), :, : cell.edge_types]
        outputs, final = module(LinkedInputs(inputs, edges), state, lengths, starts)
    elif sequences.lengths is None:
        outputs, final = module(inputs, state)
    else:
        packed = pack_padded_sequence(inputs, sequences.lengths.cpu(), enforce_sorted=False)
        packed, final = module(packed, state)
        outputs, _ = pad_packed_sequence(packed, total_length=len(inputs))
    return outputs, final
