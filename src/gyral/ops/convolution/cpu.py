"""The kernels of `gyral.ops.convolution` for the CPU: convolution.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.convolution.naive import head_of_channel
from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("convolution.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the outputs (T, B, N); nothing is saved."""
    return [torch.empty_like(a.values)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(a, backward=False, outputs=results[0])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    batch, channels = a.values.shape[1:]
    heads, kernel = a.weights.shape[-2:]
    grad_values = torch.empty_like(a.values)
    grad_history = None if a.history is None else torch.empty_like(a.history)
    by_channel = a.weights.dim() == 2 and a.since is None
    if a.weights.dim() == 4:
        grad_weights = torch.empty_like(a.weights)
    else:  # partial sums over blocks of rows, so that the order of summation does not depend on the number of threads
        shape = (kernel, channels) if by_channel else (heads, kernel)
        grad_weights = a.weights.new_zeros(KERNEL.blocks(batch), *shape)
    _run(
        a,
        backward=True,
        grad_outputs=gradients[0],
        grad_values=grad_values,
        grad_history=grad_history,
        grad_weights=grad_weights,
    )
    if a.weights.dim() == 2:
        grad_weights = grad_weights.sum(0)
    if by_channel:
        index = head_of_channel(channels, heads, a.values.device)
        grad_weights = torch.zeros_like(a.weights).index_add_(0, index, grad_weights.T)
    return {"values": grad_values, "weights": grad_weights, "history": grad_history}


def _run(a: Any, *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    steps, batch, channels = a.values.shape
    heads, kernel = a.weights.shape[-2:]
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        channels=channels,
        heads=heads,
        kernel=kernel,
        back=a.back,
        softmax=a.softmax,
        past=0 if a.history is None else a.history.shape[1],
        values=a.values,
        history=a.history,
        weights=a.weights if a.weights.dim() == 2 else None,
        scores=a.weights if a.weights.dim() == 4 else None,
        mask=a.mask,
        since=a.since,
        lengths=a.lengths,
        **further,
    )
