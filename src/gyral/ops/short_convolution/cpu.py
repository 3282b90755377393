"""The kernels of `gyral.ops.short_convolution` for the CPU: short_convolution.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("short_convolution.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the parts (T, B, …) of the outputs; nothing is saved."""
    steps, batch, channels = a.values.shape
    sizes = a.first, a.second, channels - a.first - a.second
    return [a.values.new_empty(steps, batch, size) for size in sizes], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(a, results, backward=False)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    channels, kernel = a.weight.shape
    # partial sums over blocks of rows, so that the order of summation does not depend on the number of threads
    blocks = KERNEL.blocks(a.values.shape[1])
    found = {
        "values": torch.empty_like(a.values),
        "history": torch.empty_like(a.history),
        "weight": a.values.new_zeros(blocks, kernel, channels),
        "bias": a.values.new_zeros(blocks, channels),
    }
    _run(a, gradients, backward=True, **{f"grad_{name}": tensor for name, tensor in found.items()})
    bias = None if a.bias is None else found["bias"].sum(0)
    return found | {"weight": found["weight"].sum(0).T, "bias": bias}


def _run(a: Any, parts: list[Any], *, backward: bool, **further: Any) -> None:
    """Call the library with the parts of the outputs or their gradients; `further` are further arguments."""
    steps, batch, channels = a.values.shape
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        channels=channels,
        first=a.first,
        second=a.second,
        kernel=a.weight.shape[1],
        values=a.values,
        weight=a.weight.T.contiguous(),
        bias=a.bias,
        history=a.history,
        lengths=a.lengths,
        since=a.since,
        part1=parts[0],
        part2=parts[1],
        part3=parts[2],
        **further,
    )
