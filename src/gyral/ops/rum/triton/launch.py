"""The Python functions that launch the Triton kernels of RUM."""

import functools
import math
from typing import Any

import torch
import triton
from torch import Tensor

from gyral.ops.kernels import KernelUnavailableError
from gyral.ops.rum.sequence import Gradients, Options, Problem, Solution
from gyral.ops.rum.triton.step import StepConfig
from gyral.ops.rum.triton.with_memory import backward_with_memory, forward_with_memory
from gyral.ops.rum.triton.without_memory import backward_without_memory, forward_without_memory

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
PRODUCT_DTYPES: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)
CHECKPOINT_EVERY = 1024  # steps between two saved memories for λ = 1
BLOCK_BATCH = 16  # rows of a program for λ = 0: the smallest block that tl.dot accepts
# Largest hidden sizes whose weights stay on chip: without tensor cores every thread holds many of them in registers.
RESIDENT_SIZE = {"tf32": 128, "ieee": 64}
TILE = 4096  # elements in a tile of weights or memory, and in a group of rows: registers hold several such tiles


def _settings(problem: Problem) -> dict[str, Any]:
    """Return the arguments of the kernels other than tensors, T and B."""
    options, keep = problem.options, problem.keep
    groups, size = problem.parts.shape[-2:]
    settings: dict[str, Any] = {
        "keep_probability": float(keep) if isinstance(keep, float | int) else 0.0,
        "eta": 1.0 if options.eta is None else float(options.eta),
        "config": StepConfig(
            size=size,
            recurrent=(groups - 1) * size,
            width=groups * size,
            gated=options.update_gate,
            normalized=problem.norms is not None,
            time_normalized=options.eta is not None,
            zoneout="none" if keep is None else "mask" if isinstance(keep, Tensor) else "probability",
            activation=options.activation,
        ),
    }
    if problem.memory is not None:
        block_size = triton.next_power_of_2(size)
        tile = min(max(TILE // block_size, 1), block_size)
        warps = 4 if size <= 64 else 8
        return settings | {
            "checkpoint_every": CHECKPOINT_EVERY,
            "block_size": block_size,
            "block_tile": tile,
            "num_warps": warps,
            "num_stages": 1,
        }
    block_size = max(triton.next_power_of_2(size), 16)  # tl.dot's minimum
    is_float = problem.weight_hh.dtype == torch.float32
    precision = "ieee" if is_float and not torch.backends.cuda.matmul.allow_tf32 else "tf32"
    resident = size <= RESIDENT_SIZE[precision]
    return settings | {
        "precision": precision,
        "resident": resident,
        "block_batch": BLOCK_BATCH,
        "block_rows": BLOCK_BATCH if resident else min(max(TILE // block_size, 1), BLOCK_BATCH),
        "block_size": block_size,
        "block_out": min(block_size, 128),
        "block_in": min(block_size, 32 if is_float else 64),
        "num_warps": 4 if size <= 32 else 8,
        "num_stages": 1 if resident else 2,
    }


def _shared_arguments(problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return initial hidden state, norms, keep and lengths as kernel arguments; `hidden` stands for absent tensors."""
    hidden = problem.hidden.float()
    steps, batch = problem.parts.shape[:2]
    norms = hidden if problem.norms is None else problem.norms.float()
    keep = problem.keep.float() if isinstance(problem.keep, Tensor) else hidden
    lengths = problem.lengths
    if lengths is None:
        lengths = torch.full((batch,), steps, dtype=torch.int64, device=hidden.device)
    return hidden, norms, keep, lengths


def prepare(device: torch.device) -> None:
    """Run a small problem once per device and process; see `gyral.ops.rum.sequence.Kernels`.

    Raises:
        KernelUnavailableError: The kernels do not run on the device.
    """
    reason = _probe(device)
    if reason is not None:
        raise KernelUnavailableError(f"the Triton kernels do not run on {device}: {reason}")


@functools.cache
def _probe(device: torch.device) -> str | None:
    """Return the reason why a small problem fails forward or backward, or None if it succeeds."""
    steps, batch, size = 2, 3, 4

    def values(*shape: int) -> Tensor:
        return torch.linspace(-1, 1, math.prod(shape), device=device).view(shape)

    try:
        for memory in (None, torch.eye(size, device=device).repeat(batch, 1, 1)):
            state = values(batch, size)
            options = Options("relu", True, None)
            problem = Problem(
                values(steps, batch, 3, size), values(2 * size, size), state, memory, None, None, None, options
            )
            solution = forward(problem)
            gradients = backward(problem, solution, values(steps, batch, size), state, memory)
            if not (solution.outputs.isfinite().all() and gradients.parts.isfinite().all()):
                return "their results are not finite"
    except Exception as error:  # compiler, driver and interpreter raise errors of many types
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    return None


def forward(problem: Problem) -> Solution:
    """Run the recurrence of `gyral.cells.rum.RUMCell`, λ = 0 or λ = 1, from the projected inputs.

    Overwrites `problem.parts` if its dtype is float32. For λ = 1 a step reads and writes the associative memory once in
    global memory; a small one stays in the caches.

    Args:
        problem: See `gyral.ops.rum.sequence.Problem`. On a CUDA device, or on any device under Triton's interpreter.
            `parts` and `weight_hh` are float32, bfloat16 or float16.

    Returns:
        outputs (T, B, N), hidden (B, N), memory (B, N, N) or None, cosines (T, B), all float32.
    """
    steps, batch = problem.parts.shape[:2]
    size = problem.hidden.shape[-1]
    parts = problem.parts.float()
    hidden, norms, keep, lengths = _shared_arguments(problem)
    # the kernel for λ = 1 does not write outputs beyond the end of a sequence
    make = torch.zeros if problem.memory is not None and problem.lengths is not None else torch.empty
    outputs = make((steps, batch, size), dtype=torch.float32, device=parts.device)
    final = torch.empty_like(hidden)
    cosines = torch.empty((steps, batch), dtype=torch.float32, device=parts.device)
    scales = torch.empty(
        (steps, batch, 2) if problem.norms is not None else (1,), dtype=torch.float32, device=parts.device
    )
    inputs = (parts, problem.weight_hh, hidden)
    results = (norms, keep, lengths, outputs, final, cosines, scales)
    with torch.cuda.device_of(parts):
        if problem.memory is None:
            programs = triton.cdiv(batch, BLOCK_BATCH)
            forward_without_memory[(programs,)](*inputs, *results, steps, batch, **_settings(problem))
            return Solution(outputs, final, None, cosines, (parts, scales))
        memory = problem.memory.to(torch.float32, copy=True)
        memory_reads = torch.empty_like(outputs)
        checkpoints = memory.new_empty((steps - 1) // CHECKPOINT_EVERY, *memory.shape)
        saved = (memory_reads, checkpoints)
        forward_with_memory[(batch,)](*inputs, memory, *results, *saved, steps, batch, **_settings(problem))
        return Solution(outputs, final, memory, cosines, (parts, scales, *saved))


def backward(
    problem: Problem, solution: Solution, grad_outputs: Tensor, grad_hidden: Tensor, grad_memory: Tensor | None
) -> Gradients:
    """Return all gradients except those of the weights, which are products with the gradient of `parts`.

    Overwrites the tensors that `forward` saved, and therefore runs only once after each `forward`.

    Args:
        problem: The argument of `forward`.
        solution: Its return value.
        grad_outputs: (T, B, N).
        grad_hidden: (B, N).
        grad_memory: (B, N, N), None for λ = 0.

    Returns:
        See `gyral.ops.rum.sequence.Gradients`. All tensors are float32; `parts` reuses the memory of the saved parts.
    """
    steps, batch = problem.parts.shape[:2]
    parts, scales, *saved = solution.saved
    hidden, norms, keep, lengths = _shared_arguments(problem)
    programs = batch if problem.memory is not None else triton.cdiv(batch, BLOCK_BATCH)
    grad_outputs = grad_outputs.float().contiguous()
    grad_hidden = torch.empty_like(hidden).copy_(grad_hidden)
    grad_norms = None if problem.norms is None else norms.new_zeros(programs, *norms.shape)
    norms_argument = hidden if grad_norms is None else grad_norms
    inputs = (parts, problem.weight_hh, hidden)
    before = (norms, keep, lengths, solution.outputs.contiguous(), scales)
    with torch.cuda.device_of(parts):
        if solution.memory is None:
            arguments = [*inputs, *before, grad_outputs, grad_hidden, norms_argument]
            backward_without_memory[(programs,)](*arguments, steps, batch, **_settings(problem))
        else:
            assert grad_memory is not None
            memory = solution.memory.clone()
            grad_memory = torch.empty_like(memory).copy_(grad_memory)
            arguments = [*inputs, memory, *before, *saved, grad_outputs, grad_hidden, grad_memory, norms_argument]
            backward_with_memory[(programs,)](*arguments, steps, batch, **_settings(problem))
    summed = None if grad_norms is None else grad_norms.sum(0)
    return Gradients(parts, parts.sum((0, 1)), grad_hidden, grad_memory, summed)
