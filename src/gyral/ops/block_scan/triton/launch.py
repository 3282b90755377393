"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch

from gyral.ops.block_scan import block_scan
from gyral.ops.block_scan.triton.kernels import Config, backward_blocks, forward_blocks
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
NUMBERS = 128  # of the matrices of a program, or those of one block: 4 for each thread of a warp
OF_A_THREAD = 32  # numbers of matrices that a thread loads together, or those of one step
MOST_AHEAD = 8  # steps that are loaded together


def _config(a: Any) -> Config:
    """Return the compile-time constants of the kernels."""
    size, block = a.change.shape[2:]
    width = 1 << (block - 1).bit_length()
    blocks = 1 << (-(-size // block) - 1).bit_length()
    group = max(1, min(blocks, NUMBERS // width**2))
    numbers = max(1, group * width**2 // (32 * _warps(width)))
    return Config(size, block, width, group, max(1, min(MOST_AHEAD, OF_A_THREAD // numbers)))


def _warps(width: int) -> int:
    """Return the warps of a program: more than one for a block that has more numbers than fit into its registers."""
    return max(1, min(16, width**2 // 1024))


def _run(kernel: Any, a: Any, given: list[Any]) -> None:
    config, (steps, batch) = _config(a), a.change.shape[:2]
    programs = batch * -(-config.size // (config.group * config.block))
    launch(kernel, programs, (*given, steps, batch), config, _warps(config.width))


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results; nothing else is saved for the backward pass."""
    return [a.h0.new_empty(a.change.shape[0], *a.h0.shape), torch.empty_like(a.h0)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(forward_blocks, a, [a.change, a.values, a.h0, a.fresh, a.lengths, as_bytes(a.starts), *results])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    found = {name: torch.empty_like(getattr(a, name)) for name in ("change", "values", "h0")}
    given = [a.change, a.h0, a.fresh, a.lengths, as_bytes(a.starts), results[0], *gradients, *found.values()]
    _run(backward_blocks, a, given)
    return found


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The first example has all masks; a block is not full."""
    steps, batch, size, block = MOST_AHEAD + 2, 3, 5, 3
    change, values = waves(device, steps, batch, size, block) / 2, waves(device, steps, batch, size)
    fresh, lengths = torch.arange(batch, device=device) % 2, torch.arange(steps - batch + 1, steps + 1, device=device)
    module, h0, names = sys.modules[__name__], waves(device, batch, size), ("change", "values", "h0")
    masked = change, values, h0, fresh, lengths, values[..., 0] > 0.8
    return difference(module, block_scan, masked, names) or difference(
        module, block_scan, (change, values[:1], h0, fresh), names
    )


prepare = preparation("block scans", _probe)
