"""The kernels of `gyral.ops.rum` for the CPU: rum.cpp, called through ctypes, on torch's own threads."""

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.native import library
from gyral.ops.native.products import project, project_backward, recurrent_gradient
from gyral.ops.operator import count_true
from gyral.ops.sequences import split_keep

ACTIVATIONS = ("relu", "tanh", "sigmoid", "softsign")  # in the order of their numbers in rum.hpp
DTYPES = library.DTYPES

# Steps between two copies of the associative memory. Between them backward recomputes the memory, with a rounding error
# of about 1e-9 per step.
CHECKPOINT_EVERY = 2048

KERNEL = library.Kernel(Path(__file__).with_name("rum.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: parts (T, B, G N), scalars, and for λ = 1 what restores the memory."""
    (steps, batch, _), size, new = a.x.shape, a.h0.shape[1], a.x.new_empty
    parts, scalars = new(steps, batch, len(a.w_ih)), new(steps, batch, scalars_size())
    memory = candidates = checkpoints = slots = replaced = None
    if a.memory is not None:
        width = _padded_size(a.memory)
        memory, candidates = new(batch, size, size), new(steps, batch, size)
        checkpoints = new((steps - 1) // CHECKPOINT_EVERY, batch, size, width)
        if a.starts is not None:
            slots = a.starts.new_empty(steps, batch, dtype=torch.int64)
            replaced = new(count_true(a.starts), size, width)
    results = [new(steps, batch, size), new(batch, size), memory, new(steps, batch)]
    return results, [parts, scalars, candidates, checkpoints, slots, replaced]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    outputs, final_hidden, final_memory, cosines = results
    parts, scalars, candidates, checkpoints, slots, replaced = saved
    project(a.x, a.w_ih, a.b, out=parts)
    if slots is not None:  # the number of each reset, from 0
        torch.cumsum(a.starts.flatten(), 0, out=slots.view(-1)).sub_(1)
    memory = None if a.memory is None else _padded(a.memory)
    KERNEL.run(
        backward=False,
        **fields(a, parts),
        outputs=outputs,
        past=outputs,
        final_hidden=final_hidden,
        scalars=scalars,
        candidates=candidates,
        memory=memory,
        checkpoints=checkpoints,
        slots=slots,
        replaced=replaced,
    )
    cosines.copy_(scalars[..., 2])
    if memory is not None:
        final_memory.copy_(memory[..., : memory.shape[1]])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    outputs, hidden, memory, _ = results
    parts, scalars, candidates, checkpoints, slots, replaced = saved
    grad_outputs, grad_hidden, grad_memory, _ = gradients
    grad_bias, grad_norms = new_sums(parts, a.h0, a.norms)
    # the kernel overwrites these
    grad_hidden = torch.zeros_like(hidden) if grad_hidden is None else grad_hidden.clone()
    if memory is not None:
        grad_memory = _padded(torch.zeros_like(memory) if grad_memory is None else grad_memory)
        memory = _padded(memory)
    KERNEL.run(
        backward=True,
        **fields(a, parts),
        outputs=outputs,
        past=outputs,
        scalars=scalars,
        candidates=candidates,
        memory=memory,
        checkpoints=checkpoints,
        slots=slots,
        replaced=replaced,
        grad_outputs=torch.zeros_like(outputs) if grad_outputs is None else grad_outputs,
        grad_h0=grad_hidden,
        grad_memory=grad_memory,
        grad_bias=grad_bias,
        grad_norms=grad_norms,
    )
    size = hidden.shape[1]
    return project_backward(parts, a.x, a.w_ih, None, needs) | {
        "b": grad_bias.sum((0, 1)).flatten(),
        "w_hh": recurrent_gradient(parts[..., : len(a.w_hh)], a.h0, outputs, a.starts),
        "h0": grad_hidden,
        "memory": None if grad_memory is None else grad_memory[..., :size].contiguous(),
        "norms": None if grad_norms is None else grad_norms.sum((0, 1)),
    }


def new_sums(parts: Tensor, h0: Tensor, norms: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return zeros for the gradients of bias and normalizations: two partial sums per block of rows."""
    batch, size = h0.shape
    sums = parts.new_zeros(KERNEL.blocks(batch), 2, parts.shape[2] // size, size)
    return sums, None if norms is None else sums.new_zeros(len(sums), 2, 3, 2, size)


def fields(a: Any, parts: Tensor, lag: int = 1) -> dict[str, Any]:
    """Return the arguments of the kernel that do not depend on the direction.

    Args:
        a: Has the attributes w_hh, h0, norms, keep, lengths, starts, activation, eta and epsilon.
        parts: (T, B, G N).
        lag: The number of steps between the state that a step reads and the one that it makes.
    """
    mask, keep_mean = (None, 0.0) if a.keep is None else split_keep(a.keep)
    return {
        "steps": parts.shape[0],
        "batch": parts.shape[1],
        "size": a.h0.shape[1],
        "gated": len(a.w_hh) > a.h0.shape[1],
        "activation": ACTIVATIONS.index(a.activation),
        "lag": lag,
        "checkpoint_every": CHECKPOINT_EVERY,
        "eta": a.eta or 0.0,
        "keep_mean": keep_mean,
        "epsilon": a.epsilon,
        "parts": parts,
        "weight": a.w_hh,
        "hidden": a.h0,
        "norms": a.norms,
        "keep": mask,
        "lengths": a.lengths,
        "starts": a.starts,
    }


@functools.cache
def scalars_size() -> int:
    """Return how many scalars a row saves at each step."""
    return int(KERNEL.function("scalars")())


def _padded_size(memory: Tensor) -> int:
    """Return the size N of a memory (B, N, N), rounded up to a multiple of the processor's vector width."""
    is_double = memory.dtype == torch.float64
    return int(KERNEL.function("padded")(ctypes.c_int64(memory.shape[-1]), ctypes.c_int64(is_double)))


def _padded(memory: Tensor) -> Tensor:
    """Return a copy (B, N, ≥ N) with rows zero-padded to `_padded_size`."""
    padding = _padded_size(memory) - memory.shape[-1]
    return memory.clone() if padding == 0 else F.pad(memory, (0, padding))
