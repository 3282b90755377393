"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch

from gyral.ops.stabilized_gates import NEVER, stabilized_gates
from gyral.ops.stabilized_gates.triton.kernels import BLOCK, BLOCK_STEPS, Config, backward_gates, forward_gates
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)


def _run(kernel: Any, a: Any, others: list[Any]) -> None:
    """Launch a kernel; `others` is what it takes in addition to the arguments."""
    batch, heads = a.first.shape
    given = a.gates, a.first, a.lengths, as_bytes(a.starts), *others, len(a.gates), batch
    launch(kernel, -(-batch * heads // BLOCK.value), given, Config(heads, float(a.scale)))


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results; nothing else is saved for the backward pass."""
    return [a.first.new_empty(len(a.gates), *a.first.shape) for _ in range(4)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(forward_gates, a, results)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    found = {"gates": torch.empty_like(a.gates), "first": torch.empty_like(a.first)}
    _run(backward_gates, a, [results[3], *gradients, *found.values()])
    return found


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The first example has two tiles, and all masks."""
    steps, batch, heads, names = BLOCK_STEPS.value + 1, 3, 2, ("gates", "first")
    gates, first = 3 * waves(device, steps, batch, 2 * heads), waves(device, batch, heads)
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    module, never = sys.modules[__name__], torch.full_like(first, NEVER)
    return difference(module, stabilized_gates, (gates, first, lengths, starts, 0.5), names) or difference(
        module, stabilized_gates, (gates, never), names[:1]
    )


prepare = preparation("stabilized gates", _probe)
