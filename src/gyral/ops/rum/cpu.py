"""The kernels of `gyral.ops.rum.sequence` for the CPU: rum.cpp, called through ctypes, on torch's own threads."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from gyral.ops.native import library
from gyral.ops.rum.arguments import Arguments, Gradients, Results, count_resets, number_resets

ACTIVATIONS = ("relu", "tanh", "sigmoid", "softsign")  # in the order of their numbers in rum.hpp
DTYPES = library.DTYPES
PRODUCT_DTYPES: tuple[torch.dtype, ...] = ()

# Steps between two copies of the associative memory. Between them backward recomputes the memory, with a rounding error
# of about 1e-9 per step.
CHECKPOINT_EVERY = 2048

LIBRARY = library.Recurrence(
    Path(__file__).with_name("rum.cpp"),
    ("steps", "batch", "size", "gated", "activation", "lag", "threads", "checkpoint_every"),
    ("eta", "keep_mean", "epsilon"),
    (
        "parts", "weight", "hidden", "norms", "keep", "lengths", "starts", "slots", "outputs", "past", "final_hidden",
        "scalars", "candidates", "memory", "checkpoints", "replaced", "workspace", "grad_outputs", "grad_hidden",
        "grad_memory", "grad_bias", "grad_norms",
    ),
)  # fmt: skip
prepare = LIBRARY.prepare


def allocate(arguments: Arguments, resets: int) -> Results:
    """Return uninitialized results; see `gyral.ops.rum.arguments.Kernels`."""
    steps, batch, _, size = arguments.parts.shape
    new = arguments.parts.new_empty
    outputs, hidden = new(steps, batch, size), new(batch, size)
    scalars = new(steps, batch, LIBRARY.function("scalars")())
    memory = candidates = checkpoints = slots = replaced = None
    if arguments.memory is not None:
        width = _padded_size(arguments.memory)
        memory, candidates = new(batch, size, size), new(steps, batch, size)
        checkpoints = new((steps - 1) // CHECKPOINT_EVERY, batch, size, width)
        if arguments.starts is not None:
            slots = new(steps, batch, dtype=torch.int64)
            replaced = new(resets, size, width)
    return Results(outputs, hidden, memory, scalars[..., 2], (scalars, candidates, checkpoints, slots, replaced))


def forward(arguments: Arguments) -> Results:
    """Run all steps; see `gyral.ops.rum.arguments.Kernels`."""
    results = allocate(arguments, 0 if arguments.starts is None else count_resets(arguments))
    scalars, candidates, checkpoints, slots, replaced = results.saved
    if slots is not None:
        number_resets(arguments, slots)
    memory = None if arguments.memory is None else _padded(arguments.memory)
    _run(
        arguments,
        backward=False,
        outputs=results.outputs,
        final_hidden=results.hidden,
        scalars=scalars,
        candidates=candidates,
        memory=memory,
        checkpoints=checkpoints,
        slots=slots,
        replaced=replaced,
    )
    if memory is not None and results.memory is not None:
        results.memory.copy_(memory[..., : results.memory.shape[-1]])
    return results


def backward(
    arguments: Arguments, results: Results, grad_outputs: Tensor, grad_hidden: Tensor, grad_memory: Tensor | None
) -> Gradients:
    """Return the gradients; see `gyral.ops.rum.arguments.Kernels`."""
    size = arguments.parts.shape[-1]
    scalars, candidates, checkpoints, slots, replaced = results.saved
    grad_bias, grad_norms = new_sums(arguments)
    # the kernel overwrites these
    grad_hidden = grad_hidden.clone(memory_format=torch.contiguous_format)
    grad_memory = None if grad_memory is None else _padded(grad_memory)
    _run(
        arguments,
        backward=True,
        outputs=results.outputs,
        scalars=scalars,
        candidates=candidates,
        memory=None if results.memory is None else _padded(results.memory),
        checkpoints=checkpoints,
        slots=slots,
        replaced=replaced,
        grad_outputs=grad_outputs.contiguous(),
        grad_hidden=grad_hidden,
        grad_memory=grad_memory,
        grad_bias=grad_bias,
        grad_norms=grad_norms,
    )
    norms = None if grad_norms is None else grad_norms.sum((0, 1))
    grad_memory = None if grad_memory is None else grad_memory[..., :size].contiguous()
    return Gradients(arguments.parts, grad_bias.sum((0, 1)), grad_hidden, grad_memory, norms)


def new_sums(arguments: Arguments) -> tuple[Tensor, Tensor | None]:
    """Return zeros for the gradients of bias and normalizations: two partial sums per block of rows."""
    _, batch, parts_count, size = arguments.parts.shape
    sums = arguments.parts.new_zeros(LIBRARY.blocks(batch), 2, parts_count, size)
    return sums, None if arguments.norms is None else sums.new_zeros(len(sums), 2, 3, 2, size)


def _padded_size(memory: Tensor) -> int:
    """Return the size N of a memory (B, N, N), rounded up to a multiple of the processor's vector width."""
    is_double = memory.dtype == torch.float64
    return LIBRARY.function("padded")(ctypes.c_int64(memory.shape[-1]), ctypes.c_int64(is_double))


def _padded(memory: Tensor) -> Tensor:
    """Return a copy (B, N, ≥ N) with rows zero-padded to `_padded_size`."""
    padding = _padded_size(memory) - memory.shape[-1]
    if padding == 0:
        return memory.clone(memory_format=torch.contiguous_format)
    return torch.nn.functional.pad(memory, (0, padding))


def _run(arguments: Arguments, *, backward: bool, **tensors: Tensor | None) -> None:
    """Call the library; `tensors` are further fields of the C++ structure `Arguments`."""
    tensors["past"] = tensors["outputs"]
    LIBRARY.run(backward, arguments.parts.shape[1], arguments.parts, *fields(arguments, lag=1, **tensors))


def fields(
    arguments: Arguments, *, lag: int, **tensors: Tensor | None
) -> tuple[dict[str, float], dict[str, Tensor | None]]:
    """Return the fields of the C++ structure `Arguments`: numbers, and those of the kernel and `tensors`."""
    steps, batch, _, size = arguments.parts.shape
    activation, update_gate, eta, epsilon = arguments.options
    keep = arguments.keep
    tensors |= {
        "parts": arguments.parts,
        "weight": arguments.weight_hh,
        "hidden": arguments.hidden,
        "norms": arguments.norms,
        "keep": keep if isinstance(keep, Tensor) else None,
        "lengths": arguments.lengths,
        "starts": arguments.starts,
    }
    numbers = {
        "steps": steps,
        "batch": batch,
        "size": size,
        "gated": update_gate,
        "lag": lag,
        "activation": ACTIVATIONS.index(activation),
        "checkpoint_every": CHECKPOINT_EVERY,
        "eta": eta or 0.0,
        "keep_mean": keep if isinstance(keep, float) else 0.0,
        "epsilon": epsilon,
    }
    return numbers, tensors
