"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch

from gyral.ops.diagonal.triton import coefficients
from gyral.ops.diagonal.triton.kernels import backward_scan, forward_scan
from gyral.ops.diagonal.triton.launch import run
from gyral.ops.rotation_scan import rotation_scan
from gyral.ops.rotation_scan.naive import CHUNK
from gyral.ops.rotation_scan.triton.kernels import (
    Config,
    backward_mirrors,
    backward_rotations,
    forward_mirrors,
    forward_rotations,
)
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
SMALLEST = 16  # sides of the matrix of a program


def _rotate(kernel: Any, a: Any, given: list[Any]) -> None:
    """Launch a kernel of the rotations, on all steps or on all heads of rows; `given` is what it takes."""
    steps, (batch, heads, width, _) = len(a.parts), a.memory.shape
    block = max(SMALLEST, 1 << (width - 1).bit_length())
    config = Config(a.h0.shape[1], heads, width, block, bool(a.double_angle))
    if kernel in (forward_mirrors, backward_mirrors):
        launch(kernel, steps * batch * heads, (*given, batch), config, warps=1)
    else:
        launch(kernel, batch * heads, (*given, steps, batch), config, warps=4 if block > SMALLEST else 1)


def _blend(kernel: Any, a: Any, candidates: Any, written: list[Any]) -> None:
    """Launch a kernel of the last recurrence, whose gates are a part of the parts."""
    size = a.h0.shape[1]
    config = coefficients.Config("blend", size, False, a.activation, size, 4 * size, size, False, size, 0)
    run(kernel, config, candidates, a.parts, a, written)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs, R and h after the last step; and normals, a mask, what f takes, and R before every 64th step."""
    steps, size, (_, heads, width, _) = len(a.parts), a.h0.shape, a.memory.shape
    results = [a.parts.new_empty(steps, *size), torch.empty_like(a.memory), torch.empty_like(a.h0)]
    saved = [a.parts.new_empty(steps, size[0], heads, 2, width)]
    saved += [a.parts.new_empty(steps, size[0], heads, dtype=torch.uint8), a.parts.new_empty(steps, *size)]
    return results, [*saved, a.memory.new_empty(-(-steps // CHUNK) + 1, *a.memory.shape)]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    (outputs, memory, hidden), (normals, usable, candidates, kept) = results, saved
    _rotate(forward_mirrors, a, [a.parts, normals, usable])
    given = [a.parts, a.memory, normals, usable, a.lengths, as_bytes(a.starts), candidates, kept, memory]
    _rotate(forward_rotations, a, given)
    _blend(forward_scan, a, candidates, [outputs, hidden, None])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    (normals, _, candidates, kept), (grad_outputs, grad_memory, grad_hidden) = saved, gradients
    found = {name: torch.empty_like(getattr(a, name)) for name in ("parts", "memory", "h0")}
    d, grad_normals = torch.empty_like(candidates), torch.empty_like(normals)
    _blend(backward_scan, a, candidates, [results[0], grad_outputs, grad_hidden, d, found["parts"], None, found["h0"]])
    given = [a.parts, normals, a.lengths, as_bytes(a.starts), kept, d, grad_memory, grad_normals]
    _rotate(backward_rotations, a, [*given, found["parts"], found["memory"]])
    _rotate(backward_mirrors, a, [a.parts, a.lengths, grad_normals, d, found["parts"]])
    return found


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The first example has two chunks, and all masks."""
    steps, batch, heads, width, size = CHUNK + 2, 2, 2, 3, 5
    parts, h0 = waves(device, steps, batch, 4 * size), waves(device, batch, size)
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    memory = torch.eye(width, device=device).flip(0).repeat(batch, heads, 1, 1)
    module, names = sys.modules[__name__], ("parts", "memory", "h0")
    masked = parts, memory, h0, lengths, starts, True, "tanh"
    return difference(module, rotation_scan, masked, names) or difference(
        module, rotation_scan, (parts[:3].contiguous(), memory, h0, None, None, False, "relu"), names
    )


prepare = preparation("rotation scans", _probe)
