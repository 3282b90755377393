"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch

from gyral.ops.polar import polar
from gyral.ops.polar.triton.kernels import Config, backward_polar, forward_polar
from gyral.ops.triton.launch import difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
BLOCK = 512  # numbers of a program


def _run(kernel: Any, a: Any, others: list[Any]) -> None:
    """Launch a kernel; `others` is what it takes in addition to the arguments."""
    count = a.magnitude.numel()
    launch(kernel, -(-count // BLOCK), (*a, *others, count), Config(a.magnitude.shape[-1], BLOCK))


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the result; nothing is saved for the backward pass."""
    *leading, size = a.magnitude.shape
    return [a.magnitude.new_empty(*leading, 2 * size)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Compute all numbers; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(forward_polar, a, results)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    found = {name: torch.empty_like(getattr(a, name)) for name in a._fields}
    _run(backward_polar, a, [gradients[0], *found.values()])
    return found


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None."""
    given = waves(device, 3, 2, 5), waves(device, 3, 2, 5).square()
    return difference(sys.modules[__name__], polar, given, ("magnitude", "phase"))


prepare = preparation("polar numbers", _probe)
