"""The kernels of `gyral.ops.convolution.sequence` for the CPU: convolution.cpp, called through ctypes."""

from pathlib import Path

import torch
from torch import Tensor

from gyral.ops.convolution.arguments import Arguments, head_of_channel
from gyral.ops.native import library

DTYPES = library.DTYPES

LIBRARY = library.Recurrence(
    Path(__file__).with_name("convolution.cpp"),
    ("steps", "batch", "channels", "heads", "kernel", "back", "past", "threads"),
    (),
    (
        "values", "history", "weights", "scores", "mask", "since", "lengths", "outputs", "workspace", "grad_outputs",
        "grad_values", "grad_history", "grad_weights",
    ),
)  # fmt: skip
prepare = LIBRARY.prepare


def forward(arguments: Arguments) -> Tensor:
    """Return the outputs (T, B, N)."""
    outputs = torch.empty_like(arguments.values)
    _run(arguments, backward=False, outputs=outputs)
    return outputs


def backward(arguments: Arguments, grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of values, weights and history (None without history)."""
    values, weights, history, window = arguments
    batch, channels = values.shape[1:]
    heads, kernel = weights.shape[-2:]
    grad_values = torch.empty_like(values)
    grad_history = None if history is None else torch.empty_like(history)
    by_channel = weights.dim() == 2 and window.since is None
    if weights.dim() == 4:
        grad_weights = torch.empty_like(weights)
    else:  # partial sums over blocks of rows, so that the order of summation does not depend on the number of threads
        shape = (kernel, channels) if by_channel else (heads, kernel)
        grad_weights = weights.new_zeros(LIBRARY.blocks(batch), *shape)
    _run(
        arguments,
        backward=True,
        grad_outputs=grad_outputs.contiguous(),
        grad_values=grad_values,
        grad_history=grad_history,
        grad_weights=grad_weights,
    )
    if weights.dim() == 2:
        grad_weights = grad_weights.sum(0)
    if by_channel:
        index = head_of_channel(channels, heads, values.device)
        grad_weights = torch.zeros_like(weights).index_add_(0, index, grad_weights.T)
    return grad_values, grad_weights, grad_history


def _run(arguments: Arguments, *, backward: bool, **further: Tensor | None) -> None:
    """Call the library; `further` are further fields of the C++ structure `Arguments`."""
    values, weights, history, window = arguments
    steps, batch, channels = values.shape
    heads, kernel = weights.shape[-2:]
    numbers = {
        "steps": steps,
        "batch": batch,
        "channels": channels,
        "heads": heads,
        "kernel": kernel,
        "back": window.back,
        "past": 0 if history is None else history.shape[1],
    }
    tensors = {
        "values": values,
        "history": history,
        "weights" if weights.dim() == 2 else "scores": weights,
        "mask": window.mask,
        "since": window.since,
        "lengths": window.lengths,
    }
    LIBRARY.run(backward, batch, values, numbers, tensors | further)
