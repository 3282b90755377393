"""The state space of Mamba as Triton kernels: one launch forward, and three backward, the last of which adds sums.

A kernel has the states of some channels of a row side by side. All arithmetic is float32.
"""

import functools
import sys
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native.kernels import before_chunks
from gyral.ops.selective_scan import selective_state_space
from gyral.ops.selective_scan.triton.kernels import CHUNK, backward_chunks, backward_states, forward_states
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, summed, waves
from gyral.ops.triton.states import tile_of

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs and last states; and the states before each chunk, and the step sizes."""
    return [torch.empty_like(a.u), torch.empty_like(a.h0)], [_of_chunks(a), torch.empty_like(a.step)]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    given = a.u, a.gate, a.step, a.matrices, a.rate, a.bias, a.skip, a.h0, a.lengths, as_bytes(a.starts)
    _launch(forward_states, a, [*given, *results, *saved])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    (kept, step_sizes), (grad_outputs, grad_final) = saved, gradients
    found = {name: torch.empty_like(getattr(a, name)) for name in ("u", "gate", "step", "matrices", "h0")}
    carried, starts = _of_chunks(a), as_bytes(a.starts)
    given = [a.gate, step_sizes, a.matrices, a.rate, a.lengths, starts, grad_outputs, grad_final, carried]
    _launch(backward_states, a, [*given, found["h0"]])
    constants = {name: getattr(a, name) for name in ("rate", "bias", "skip")}
    programs = _chunks(a) * len(a.h0)
    sums = a.u.new_empty(programs, sum(map(Tensor.numel, constants.values())))
    given = [a.u, a.gate, step_sizes, a.matrices, a.rate, a.skip, a.lengths, starts, kept, carried, grad_outputs]
    written = [found[name] for name in ("u", "gate", "step", "matrices")]
    _launch(backward_chunks, a, [*given, *written, sums], programs)
    return found | summed(sums, constants)


def _chunks(a: Any) -> int:
    """Return the number of chunks."""
    return -(-a.u.shape[0] // CHUNK.value)


def _of_chunks(a: Any) -> Tensor:
    """Return a tensor without values for a state of each chunk."""
    return before_chunks(a.u, a.u.shape[0], CHUNK.value, *a.h0.shape)


def _launch(kernel: Any, a: Any, given: list[Any], programs: int | None = None) -> None:
    """Launch a kernel, with a program for some channels of each row unless there is another number of programs."""
    (steps, batch), tile = a.u.shape[:2], tile_of(*a.rate.shape)
    programs = batch * tile.groups if programs is None else programs
    launch(kernel, programs, (*given, steps, batch), tile, tile.warps)


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The example has two chunks, lengths and starts."""
    steps, batch, size, states = CHUNK.value + 3, 2, 6, 3
    sequence, of_states = (steps, batch, size), (size, states)
    shapes = *[sequence] * 3, (steps, batch, 2 * states), of_states, (size,), (size,), (batch, *of_states)
    tensors = [waves(device, *shape) for shape in shapes]
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    names = selective_state_space.Arguments._fields[: len(shapes)]
    return difference(sys.modules[__name__], selective_state_space, (*tensors, lengths, starts), names)


prepare = preparation("selective state spaces", _probe)
