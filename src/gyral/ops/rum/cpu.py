"""The kernels of `gyral.ops.rum.sequence` for the CPU: rum.cpp, called through ctypes, on torch's own threads."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from gyral.ops.native import library
from gyral.ops.rum.problem import Gradients, Problem, Solution, count_resets, number_resets

ACTIVATIONS = ("relu", "tanh", "sigmoid", "softsign")  # in the order of their numbers in rum.hpp
DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64)
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


def prepare(device: torch.device) -> None:
    """Compile the kernels on first use; see `gyral.ops.rum.problem.Kernels`."""
    LIBRARY.prepare()


def allocate(problem: Problem, resets: int) -> Solution:
    """Return a solution of uninitialized memory; see `gyral.ops.rum.problem.Kernels`."""
    steps, batch, _, size = problem.parts.shape
    new = problem.parts.new_empty
    outputs, hidden = new(steps, batch, size), new(batch, size)
    scalars = new(steps, batch, LIBRARY.function("scalars")())
    memory = candidates = checkpoints = slots = replaced = None
    if problem.memory is not None:
        width = _padded_size(problem.memory)
        memory, candidates = new(batch, size, size), new(steps, batch, size)
        checkpoints = new((steps - 1) // CHECKPOINT_EVERY, batch, size, width)
        if problem.starts is not None:
            slots = new(steps, batch, dtype=torch.int64)
            replaced = new(resets, size, width)
    return Solution(outputs, hidden, memory, scalars[..., 2], (scalars, candidates, checkpoints, slots, replaced))


def forward(problem: Problem) -> Solution:
    """Run all steps; see `gyral.ops.rum.problem.Kernels`."""
    solution = allocate(problem, 0 if problem.starts is None else count_resets(problem))
    scalars, candidates, checkpoints, slots, replaced = solution.saved
    if slots is not None:
        number_resets(problem, slots)
    memory = None if problem.memory is None else _padded(problem.memory)
    _run(
        problem,
        backward=False,
        outputs=solution.outputs,
        final_hidden=solution.hidden,
        scalars=scalars,
        candidates=candidates,
        memory=memory,
        checkpoints=checkpoints,
        slots=slots,
        replaced=replaced,
    )
    if memory is not None and solution.memory is not None:
        solution.memory.copy_(memory[..., : solution.memory.shape[-1]])
    return solution


def backward(
    problem: Problem, solution: Solution, grad_outputs: Tensor, grad_hidden: Tensor, grad_memory: Tensor | None
) -> Gradients:
    """Return the gradients; see `gyral.ops.rum.problem.Kernels`."""
    size = problem.parts.shape[-1]
    scalars, candidates, checkpoints, slots, replaced = solution.saved
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
    return Gradients(problem.parts, grad_bias.sum((0, 1)), grad_hidden, grad_memory, norms)


def new_sums(problem: Problem) -> tuple[Tensor, Tensor | None]:
    """Return zeros for the gradients of bias and normalizations: two partial sums per block of rows."""
    _, batch, parts_count, size = problem.parts.shape
    sums = problem.parts.new_zeros(LIBRARY.blocks(batch), 2, parts_count, size)
    return sums, None if problem.norms is None else sums.new_zeros(len(sums), 2, 3, 2, size)


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


def _run(problem: Problem, *, backward: bool, **tensors: Tensor | None) -> None:
    """Call the library on a problem; `tensors` are further fields of `Arguments`."""
    tensors["past"] = tensors["outputs"]
    LIBRARY.run(backward, problem.parts.shape[1], problem.parts, *fields(problem, lag=1, **tensors))


def fields(
    problem: Problem, *, lag: int, **tensors: Tensor | None
) -> tuple[dict[str, float], dict[str, Tensor | None]]:
    """Return the fields of `Arguments`: numbers, and the problem's tensors together with `tensors`."""
    steps, batch, _, size = problem.parts.shape
    activation, update_gate, eta, epsilon = problem.options
    keep = problem.keep
    tensors |= {
        "parts": problem.parts,
        "weight": problem.weight_hh,
        "hidden": problem.hidden,
        "norms": problem.norms,
        "keep": keep if isinstance(keep, Tensor) else None,
        "lengths": problem.lengths,
        "starts": problem.starts,
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
