"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch

from gyral.ops.normalized_heads import normalized_heads
from gyral.ops.normalized_heads.triton.kernels import Config, backward_heads, forward_heads
from gyral.ops.triton.launch import difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
NUMBERS = 1024  # of a program


def _run(kernel: Any, a: Any, others: list[Any]) -> None:
    """Launch a kernel; `others` is what it takes in addition to the arguments."""
    count, size = a.least.numel(), a.outputs.shape[-1] - 1
    block = 1 << (size - 1).bit_length()
    config = Config(size, block, max(1, NUMBERS // block), float(a.epsilon))
    launch(kernel, -(-count // config.heads), (a.outputs, a.least, *others, count), config)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the result; nothing is saved for the backward pass."""
    *leading, size = a.outputs.shape
    return [a.outputs.new_empty(*leading, size - 1)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(forward_heads, a, results)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    found = {"outputs": torch.empty_like(a.outputs), "least": torch.empty_like(a.least)}
    _run(backward_heads, a, [gradients[0], *found.values()])
    return found


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None."""
    given = waves(device, 3, 2, 5, 7), waves(device, 3, 2, 5).square(), 1e-5
    return difference(sys.modules[__name__], normalized_heads, given, ("outputs", "least"))


prepare = preparation("normalized heads", _probe)
