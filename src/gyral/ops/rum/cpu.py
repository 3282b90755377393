"""The kernels of `gyral.ops.rum.sequence` for the CPU: rum.cpp, called through ctypes, on torch's own threads."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from gyral.ops.native import library
from gyral.ops.rum.sequence import Gradients, Problem, Solution

ACTIVATIONS = ("relu", "tanh", "sigmoid", "softsign")  # in the order of their numbers in rum.hpp
DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64)
PRODUCT_DTYPES: tuple[torch.dtype, ...] = ()

# Steps between two copies of the associative memory. Between them backward recomputes the memory, with a rounding error
# of about 1e-9 per step.
CHECKPOINT_EVERY = 2048

LIBRARY = library.Recurrence(
    Path(__file__).with_name("rum.cpp"),
    ("steps", "batch", "size", "gated", "activation", "lag", "threads", "checkpoint_every"),
    ("eta", "keep_mean"),
    (
        "parts", "weight", "hidden", "norms", "keep", "lengths", "outputs", "past", "final_hidden", "scalars",
        "candidates", "memory", "checkpoints", "workspace", "grad_outputs", "grad_hidden", "grad_memory", "grad_bias",
        "grad_norms",
    ),
)  # fmt: skip


def prepare(device: torch.device) -> None:
    """Compile the kernels on first use; see `gyral.ops.rum.sequence.Kernels`."""
    LIBRARY.prepare()


def forward(problem: Problem) -> Solution:
    """Run all steps; see `gyral.ops.rum.sequence.Kernels`."""
    steps, batch, _, size = problem.parts.shape
    new = problem.parts.new_empty
    outputs, final_hidden = new(steps, batch, size), new(batch, size)
    scalars = new(steps, batch, LIBRARY.function("scalars")())
    candidates = memory = checkpoints = None
    if problem.memory is not None:
        candidates, memory = new(steps, batch, size), _padded(problem.memory)
        checkpoints = new((steps - 1) // CHECKPOINT_EVERY, *memory.shape)
    _run(
        problem,
        backward=False,
        outputs=outputs,
        final_hidden=final_hidden,
        scalars=scalars,
        candidates=candidates,
        memory=memory,
        checkpoints=checkpoints,
    )
    final_memory = None if memory is None else memory[..., :size].contiguous()
    return Solution(outputs, final_hidden, final_memory, scalars[..., 2], (scalars, candidates, checkpoints))


def backward(
    problem: Problem, solution: Solution, grad_outputs: Tensor, grad_hidden: Tensor, grad_memory: Tensor | None
) -> Gradients:
    """Return the gradients; see `gyral.ops.rum.sequence.Kernels`."""
    size = problem.parts.shape[-1]
    scalars, candidates, checkpoints = solution.saved
    grad_bias, grad_norms = new_sums(problem)
    # the kernel overwrites these
    grad_hidden = grad_hidden.clone(memory_format=torch.contiguous_format)
    grad_memory = None if grad_memory is None else _padded(grad_memory)
    _run(
        problem,
        backward=True,
        outputs=solution.outputs,
        scalars=scalars,
        candidates=candidates,
        memory=None if solution.memory is None else _padded(solution.memory),
        checkpoints=checkpoints,
        grad_outputs=grad_outputs.contiguous(),
        grad_hidden=grad_hidden,
        grad_memory=grad_memory,
        grad_bias=grad_bias,
        grad_norms=grad_norms,
    )
    norms = None if grad_norms is None else grad_norms.sum((0, 1))
    grad_memory = None if grad_memory is None else grad_memory[..., :size].contiguous()
    return Gradients(problem.parts, grad_bias.sum((0, 1)), grad_hidden, grad_memory, norms)


def new_sums(problem: Problem) -> tuple[Tensor, Tensor | None]:
    """Return zeros for the gradients of bias and normalizations: two partial sums per block of rows."""
    _, batch, parts_count, size = problem.parts.shape
    sums = problem.parts.new_zeros(LIBRARY.blocks(batch), 2, parts_count, size)
    return sums, None if problem.norms is None else sums.new_zeros(len(sums), 2, 3, 2, size)


def _padded(memory: Tensor) -> Tensor:
    """Return a copy (B, N, ≥ N) with rows zero-padded to a multiple of the processor's vector width."""
    size = memory.shape[-1]
    is_double = memory.dtype == torch.float64
    width = LIBRARY.function("padded")(ctypes.c_int64(size), ctypes.c_int64(is_double))
    return (
        torch.nn.functional.pad(memory, (0, width - size))
        if width > size
        else memory.clone(memory_format=torch.contiguous_format)
    )


def _run(problem: Problem, *, backward: bool, **tensors: Tensor | None) -> None:
    """Call the library on a problem; `tensors` are further fields of `Arguments`."""
    tensors["past"] = tensors["outputs"]
    LIBRARY.run(backward, problem.parts.shape[1], problem.parts, *fields(problem, lag=1, **tensors))


def fields(
    problem: Problem, *, lag: int, **tensors: Tensor | None
) -> tuple[dict[str, float], dict[str, Tensor | None]]:
    """Return the fields of `Arguments`: numbers, and the problem's tensors together with `tensors`."""
    steps, batch, _, size = problem.parts.shape
    activation, update_gate, eta = problem.options
    keep = problem.keep
    tensors |= {
        "parts": problem.parts,
        "weight": problem.weight_hh,
        "hidden": problem.hidden,
        "norms": problem.norms,
        "keep": keep if isinstance(keep, Tensor) else None,
        "lengths": problem.lengths,
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
    }
    return numbers, tensors
