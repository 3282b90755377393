"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch

from gyral.ops.short_convolution import OPERATOR
from gyral.ops.short_convolution.triton.kernels import (
    BLOCK,
    BLOCK_STEPS,
    Config,
    backward_convolution,
    forward_convolution,
)
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)


def _run(kernel: Any, a: Any, steps: int, written: list[Any]) -> None:
    """Launch a kernel on tiles of a number of steps; `written` is what it takes in addition to the arguments."""
    batch, (channels, kernel_size) = a.values.shape[1], a.weight.shape
    given = a.values, a.weight, a.bias, a.history, a.lengths, as_bytes(a.starts), *written, len(a.values), batch
    programs = -(-batch * channels // BLOCK.value) * _tiles(steps)
    launch(kernel, programs, given, Config(channels, kernel_size, a.first, a.second))


def _tiles(steps: int) -> int:
    return -(-steps // BLOCK_STEPS.value)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the parts of the outputs; nothing is saved for the backward pass."""
    steps, batch, channels = a.values.shape
    sizes = a.first, a.second, channels - a.first - a.second
    return [a.values.new_empty(steps, batch, size) for size in sizes], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(forward_convolution, a, len(a.values), results)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    found: dict[str, Any] = {"values": torch.empty_like(a.values), "history": torch.empty_like(a.history)}
    (channels, kernel_size), batch = a.weight.shape, a.values.shape[1]
    steps = len(a.values) + kernel_size - 1  # those of the history, too
    width = channels * kernel_size
    sums = a.values.new_empty(_tiles(steps), batch, width + (0 if a.bias is None else channels))
    parts = [None if each is None or each.numel() == 0 else each for each in gradients]
    _run(backward_convolution, a, steps, [*parts, found["values"], found["history"], sums])
    total = sums.sum((0, 1))
    found["weight"] = total[:width].view(channels, kernel_size)
    if a.bias is not None:
        found["bias"] = total[width:]
    return found


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The first example has two tiles, and all masks."""
    steps, batch, channels, kernel = BLOCK_STEPS.value + 1, 3, 6, 4
    shapes = (steps, batch, channels), (channels, kernel), (channels,), (batch, kernel - 1, channels)
    values, weight, bias, history = (waves(device, *shape) for shape in shapes)
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    module, names = sys.modules[__name__], OPERATOR.Arguments._fields[:4]
    masked = values, weight, bias, history, lengths, starts, 1, 3
    return difference(module, OPERATOR, masked, names) or difference(
        module, OPERATOR, (values, weight, None, history, None, None, channels, 0), ("values", "weight", "history")
    )


prepare = preparation("short convolutions", _probe)
