"""The Python functions that launch the Triton kernels of RUM."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from gyral.ops.kernels import KernelUnavailableError
from gyral.ops.rum.problem import Gradients, Problem, Solution, count_resets, number_resets
from gyral.ops.rum.reference import Options
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
        "epsilon": float(options.epsilon),
        "config": StepConfig(
            size=size,
            recurrent=(groups - 1) * size,
            width=groups * size,
            gated=options.update_gate,
            normalized=problem.norms is not None,
            time_normalized=options.eta is not None,
            has_starts=problem.starts is not None,
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
    # torch refuses to read the older `allow_tf32` where the newer setting was used
    precision = "ieee" if is_float and torch.backends.cuda.matmul.fp32_precision != "tf32" else "tf32"
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


def _shared_arguments(problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return initial hidden state, norms, keep, lengths and starts as kernel arguments.

    `hidden` stands for absent tensors.
    """
    hidden = problem.hidden.float()
    steps, batch = problem.parts.shape[:2]
    norms = hidden if problem.norms is None else problem.norms.float()
    keep = problem.keep.float() if isinstance(problem.keep, Tensor) else hidden
    lengths = problem.lengths
    if lengths is None:
        lengths = torch.full((batch,), steps, dtype=torch.int64, device=hidden.device)
    starts = hidden if problem.starts is None else problem.starts.view(torch.uint8)
    return hidden, norms, keep, lengths, starts


def prepare(device: torch.device) -> None:
    """Run a small problem once per device and process; see `gyral.ops.rum.problem.Kernels`.

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


def allocate(problem: Problem, resets: int) -> Solution:
    """Return a solution of uninitialized memory; see `gyral.ops.rum.problem.Kernels`."""
    steps, batch, _, size = problem.parts.shape

    def new(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=problem.parts.device)

    parts = None if problem.parts.dtype == torch.float32 else new(*problem.parts.shape)
    scales = new(steps, batch, 2) if problem.norms is not None else new(1)
    results, cosines = (new(steps, batch, size), new(batch, size)), new(steps, batch)
    if problem.memory is None:
        return Solution(*results, None, cosines, (parts, scales))
    slots = replaced = None
    if problem.starts is not None:
        slots = torch.empty((steps, batch), dtype=torch.int64, device=problem.parts.device)
        replaced = new(resets, size, size)
    checkpoints = new((steps - 1) // CHECKPOINT_EVERY, batch, size, size)
    saved = new(steps, batch, size), slots, replaced, checkpoints
    return Solution(*results, new(batch, size, size), cosines, (parts, scales, *saved))


def forward(problem: Problem) -> Solution:
    """Run the recurrence of `gyral.cells.rum.RUMCell`, λ = 0 or λ = 1, from the projected inputs.

    Overwrites `problem.parts` if its dtype is float32. For λ = 1 a step reads and writes the associative memory once in
    global memory; a small one stays in the caches.

    Args:
        problem: See `gyral.ops.rum.problem.Problem`. On a CUDA device, or on any device under Triton's interpreter.
            `parts` and `weight_hh` are float32, bfloat16 or float16.

    Returns:
        outputs (T, B, N), hidden (B, N), memory (B, N, N) or None, cosines (T, B), all float32.
    """
    steps, batch = problem.parts.shape[:2]
    solution = allocate(problem, count_resets(problem))
    parts, scales, *saved = solution.saved
    parts = problem.parts if parts is None else parts.copy_(problem.parts)
    if batch == 0:
        return solution
    hidden, *before = _shared_arguments(problem)
    inputs = (parts, problem.weight_hh, hidden)
    results = (*before, solution.outputs, solution.hidden, solution.cosines, scales)
    with torch.cuda.device_of(parts):
        if solution.memory is None or problem.memory is None:
            programs = triton.cdiv(batch, BLOCK_BATCH)
            forward_without_memory[(programs,)](*inputs, *results, steps, batch, **_settings(problem))
            return solution
        if problem.lengths is not None:
            solution.outputs.zero_()  # the kernel does not write outputs beyond the end of a sequence
        number_resets(problem, saved[1])
        memory = solution.memory.copy_(problem.memory)
        saved = _present(saved, hidden)
        forward_with_memory[(batch,)](*inputs, memory, *results, *saved, steps, batch, **_settings(problem))
        return solution


def _present(tensors: Sequence[Tensor | None], substitute: Tensor) -> list[Tensor]:
    return [substitute if tensor is None else tensor for tensor in tensors]


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
        See `gyral.ops.rum.problem.Gradients`. All tensors are float32; `parts` reuses the memory of the saved parts.
    """
    steps, batch = problem.parts.shape[:2]
    parts, scales, *saved = solution.saved
    parts = problem.parts if parts is None else parts
    hidden, norms, keep, lengths, starts = _shared_arguments(problem)
    programs = batch if problem.memory is not None else triton.cdiv(batch, BLOCK_BATCH)
    grad_outputs = grad_outputs.float().contiguous()
    grad_hidden = torch.empty_like(hidden).copy_(grad_hidden)
    grad_norms = None if problem.norms is None else norms.new_zeros(programs, *norms.shape)
    norms_argument = hidden if grad_norms is None else grad_norms
    inputs = (parts, problem.weight_hh, hidden)
    before = (norms, keep, lengths, starts, solution.outputs.contiguous(), scales)
    with torch.cuda.device_of(parts):
        if batch == 0:
            pass
        elif solution.memory is None:
            arguments = [*inputs, *before, grad_outputs, grad_hidden, norms_argument]
            backward_without_memory[(programs,)](*arguments, steps, batch, **_settings(problem))
        else:
            assert grad_memory is not None
            memory = solution.memory.clone()
            grad_memory = torch.empty_like(memory).copy_(grad_memory)
            arguments = [
                *inputs,
                memory,
                *before,
                *_present(saved, hidden),
                grad_outputs,
                grad_hidden,
                grad_memory,
                norms_argument,
            ]
            backward_with_memory[(programs,)](*arguments, steps, batch, **_settings(problem))
    summed = None if grad_norms is None else grad_norms.sum(0)
    return Gradients(parts, parts.sum((0, 1)), grad_hidden, grad_memory, summed)
