"""The layer of S4D as Triton kernels: one launch forward, and three backward, the last of which has the parameters.

A kernel has the states of some channels of a row side by side. All arithmetic is float32.
"""

import functools
import sys
from typing import Any

import torch
from torch import Tensor

from gyral.ops.channel_scan import channel_state_space
from gyral.ops.channel_scan.triton.kernels import (
    CHUNK,
    SPAN,
    backward_chunks,
    backward_parameters,
    backward_states,
    forward_states,
)
from gyral.ops.native.kernels import before_chunks
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves
from gyral.ops.triton.states import tile_of

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
CONSTANTS = ("rate", "frequency", "scale", "readout", "skip")


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs and last states; and the states before each chunk, and λ and 2 C ⊙ B̄."""
    return [torch.empty_like(a.inputs), torch.empty_like(a.h0)], [_of_chunks(a), a.h0.new_empty(2 * a.readout.numel())]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    steps, batch, _ = a.inputs.shape
    given = a.inputs, *_constants(a), a.h0, a.lengths, as_bytes(a.starts), *results, *saved, steps, batch
    _launch(forward_states, a, batch, given)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    (kept, constants), (grad_outputs, grad_final), (steps, batch, _) = saved, gradients, a.inputs.shape
    found = {name: torch.empty_like(getattr(a, name)) for name in ("inputs", "h0", *CONSTANTS)}
    carried, masks = _of_chunks(a), (a.lengths, as_bytes(a.starts))
    *parameters, skip = _constants(a)
    _launch(
        backward_states, a, batch, (constants, *masks, grad_outputs, grad_final, carried, found["h0"], steps, batch)
    )
    spans = batch * -(-steps // (CHUNK.value * SPAN.value))
    sums = a.h0.new_empty(spans, 2 * a.readout.numel() + skip.numel())
    given = a.inputs, constants, skip, *masks, kept, carried, grad_outputs, found["inputs"], sums, steps, batch
    _launch(backward_chunks, a, spans, given)
    _launch(backward_parameters, a, 1, (*parameters, sums, *(found[name] for name in CONSTANTS), spans))
    return found


def _constants(a: Any) -> list[Tensor]:
    return [getattr(a, name) for name in CONSTANTS]


def _of_chunks(a: Any) -> Tensor:
    """Return a tensor without values for a state of each chunk."""
    return before_chunks(a.inputs, a.inputs.shape[0], CHUNK.value, *a.h0.shape)


def _launch(kernel: Any, a: Any, count: int, given: tuple[Any, ...]) -> None:
    """Launch a kernel, with a number of programs for each group of channels."""
    tile = tile_of(*a.rate.shape)
    launch(kernel, count * tile.groups, given, tile, tile.warps)


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The example has two chunks, lengths and starts."""
    steps, batch, size, states = CHUNK.value + 3, 2, 6, 3
    of_states = size, states
    shapes = (steps, batch, size), of_states, of_states, (size,), (2, *of_states), (size,), (batch, 2 * size * states)
    tensors = [waves(device, *shape) for shape in shapes]
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    names = channel_state_space.Arguments._fields[: len(shapes)]
    return difference(sys.modules[__name__], channel_state_space, (*tensors, lengths, starts), names)


prepare = preparation("channel state spaces", _probe)
