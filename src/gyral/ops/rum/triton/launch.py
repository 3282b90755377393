"""The Python functions that launch the Triton kernels of RUM."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from gyral.ops.kernels import KernelUnavailableError
from gyral.ops.rum.arguments import Arguments, Gradients, Results, count_resets, number_resets
from gyral.ops.rum.reference import Options
from gyral.ops.rum.triton.step import StepConfig
from gyral.ops.rum.triton.with_memory import backward_with_memory, forward_with_memory
from gyral.ops.rum.triton.without_memory import backward_without_memory, forward_without_memory

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
PRODUCT_DTYPES: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)
CHECKPOINT_EVERY = 1024  # steps between two saved memories for λ = 1
BLOCK_BATCH = 16  # rows of a program for λ = 0: the smallest block that tl.dot accepts
# Largest hidden sizes at which the weights stay on chip; without tensor cores, threads hold them in registers.
RESIDENT_SIZE = {"tf32": 128, "ieee": 64}
TILE = 4096  # elements in a tile of weights or memory, and in a block of rows: registers hold several such tiles


def _settings(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments of the kernels other than tensors, T and B."""
    options, keep = arguments.options, arguments.keep
    parts_count, size = arguments.parts.shape[-2:]
    settings: dict[str, Any] = {
        "keep_probability": float(keep) if isinstance(keep, float | int) else 0.0,
        "eta": 1.0 if options.eta is None else float(options.eta),
        "epsilon": float(options.epsilon),
        "config": StepConfig(
            size=size,
            recurrent=(parts_count - 1) * size,
            width=parts_count * size,
            gated=options.update_gate,
            normalized=arguments.norms is not None,
            time_normalized=options.eta is not None,
            has_starts=arguments.starts is not None,
            zoneout="none" if keep is None else "mask" if isinstance(keep, Tensor) else "probability",
            activation=options.activation,
        ),
    }
    if arguments.memory is not None:
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
    is_float = arguments.weight_hh.dtype == torch.float32
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


def _shared_arguments(arguments: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return initial hidden state, norms, keep, lengths and starts as kernel arguments.

    `hidden` stands for absent tensors.
    """
    hidden = arguments.hidden.float()
    steps, batch = arguments.parts.shape[:2]
    norms = hidden if arguments.norms is None else arguments.norms.float()
    keep = arguments.keep.float() if isinstance(arguments.keep, Tensor) else hidden
    lengths = arguments.lengths
    if lengths is None:
        lengths = torch.full((batch,), steps, dtype=torch.int64, device=hidden.device)
    starts = hidden if arguments.starts is None else arguments.starts.view(torch.uint8)
    return hidden, norms, keep, lengths, starts


def prepare(device: torch.device) -> None:
    """Run a small arguments once per device and process; see `gyral.ops.rum.arguments.Kernels`.

    Raises:
        KernelUnavailableError: The kernels do not run on the device.
    """
    reason = _probe(device)
    if reason is not None:
        raise KernelUnavailableError(f"the Triton kernels do not run on {device}: {reason}")


@functools.cache
def _probe(device: torch.device) -> str | None:
    """Return the reason why a small arguments fails forward or backward, or None if it succeeds."""
    steps, batch, size = 2, 3, 4

    def values(*shape: int) -> Tensor:
        return torch.linspace(-1, 1, math.prod(shape), device=device).view(shape)

    try:
        for memory in (None, torch.eye(size, device=device).repeat(batch, 1, 1)):
            state = values(batch, size)
            options = Options("relu", True, None)
            arguments = Arguments(
                values(steps, batch, 3, size), values(2 * size, size), state, memory, None, None, None, options
            )
            results = forward(arguments)
            gradients = backward(arguments, results, values(steps, batch, size), state, memory)
            if not (results.outputs.isfinite().all() and gradients.parts.isfinite().all()):
                return "their results are not finite"
    except Exception as error:  # compiler, driver and interpreter raise errors of many types
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    return None


def allocate(arguments: Arguments, resets: int) -> Results:
    """Return uninitialized results; see `gyral.ops.rum.arguments.Kernels`."""
    steps, batch, _, size = arguments.parts.shape

    def new(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=arguments.parts.device)

    parts = None if arguments.parts.dtype == torch.float32 else new(*arguments.parts.shape)
    scales = new(steps, batch, 2) if arguments.norms is not None else new(1)
    states, cosines = (new(steps, batch, size), new(batch, size)), new(steps, batch)
    if arguments.memory is None:
        return Results(*states, None, cosines, (parts, scales))
    slots = replaced = None
    if arguments.starts is not None:
        slots = torch.empty((steps, batch), dtype=torch.int64, device=arguments.parts.device)
        replaced = new(resets, size, size)
    checkpoints = new((steps - 1) // CHECKPOINT_EVERY, batch, size, size)
    saved = new(steps, batch, size), slots, replaced, checkpoints
    return Results(*states, new(batch, size, size), cosines, (parts, scales, *saved))


def forward(arguments: Arguments) -> Results:
    """Run the recurrence of `gyral.cells.rum.RUMCell`, λ = 0 or λ = 1, from the projected inputs.

    Overwrites `arguments.parts` if its dtype is float32. For λ = 1 a step reads and writes the associative memory
    once in global memory; a small one stays in the caches.

    Args:
        arguments: See `gyral.ops.rum.arguments.Arguments`. On a CUDA device, or on any device under Triton's
            interpreter. `parts` and `weight_hh` are float32, bfloat16 or float16.

    Returns:
        outputs (T, B, N), hidden (B, N), memory (B, N, N) or None, cosines (T, B), all float32.
    """
    steps, batch = arguments.parts.shape[:2]
    results = allocate(arguments, count_resets(arguments))
    parts, scales, *saved = results.saved
    parts = arguments.parts if parts is None else parts.copy_(arguments.parts)
    if batch == 0:
        return results
    hidden, *before = _shared_arguments(arguments)
    inputs = (parts, arguments.weight_hh, hidden)
    written = (*before, results.outputs, results.hidden, results.cosines, scales)
    with torch.cuda.device_of(parts):
        if results.memory is None or arguments.memory is None:
            programs = triton.cdiv(batch, BLOCK_BATCH)
            forward_without_memory[(programs,)](*inputs, *written, steps, batch, **_settings(arguments))
            return results
        if arguments.lengths is not None:
            results.outputs.zero_()  # the kernel does not write outputs beyond the end of a sequence
        number_resets(arguments, saved[1])
        memory = results.memory.copy_(arguments.memory)
        saved = _present(saved, hidden)
        forward_with_memory[(batch,)](*inputs, memory, *written, *saved, steps, batch, **_settings(arguments))
        return results


def _present(tensors: Sequence[Tensor | None], substitute: Tensor) -> list[Tensor]:
    return [substitute if tensor is None else tensor for tensor in tensors]


def backward(
    arguments: Arguments, results: Results, grad_outputs: Tensor, grad_hidden: Tensor, grad_memory: Tensor | None
) -> Gradients:
    """Return all gradients except those of the weights, which are products with the gradient of `parts`.

    Overwrites the tensors that `forward` saved, and therefore runs only once after each `forward`.

    Args:
        arguments: The argument of `forward`.
        results: Its return value.
        grad_outputs: (T, B, N).
        grad_hidden: (B, N).
        grad_memory: (B, N, N), None for λ = 0.

    Returns:
        See `gyral.ops.rum.arguments.Gradients`. All tensors are float32; `parts` reuses the memory of the saved parts.
    """
    steps, batch = arguments.parts.shape[:2]
    parts, scales, *saved = results.saved
    parts = arguments.parts if parts is None else parts
    hidden, norms, keep, lengths, starts = _shared_arguments(arguments)
    programs = batch if arguments.memory is not None else triton.cdiv(batch, BLOCK_BATCH)
    grad_outputs = grad_outputs.float().contiguous()
    grad_hidden = torch.empty_like(hidden).copy_(grad_hidden)
    grad_norms = None if arguments.norms is None else norms.new_zeros(programs, *norms.shape)
    norms_argument = hidden if grad_norms is None else grad_norms
    inputs = (parts, arguments.weight_hh, hidden)
    before = (norms, keep, lengths, starts, results.outputs.contiguous(), scales)
    with torch.cuda.device_of(parts):
        if batch == 0:
            pass
        elif results.memory is None:
            kernel_arguments = [*inputs, *before, grad_outputs, grad_hidden, norms_argument]
            backward_without_memory[(programs,)](*kernel_arguments, steps, batch, **_settings(arguments))
        else:
            assert grad_memory is not None
            memory = results.memory.clone()
            grad_memory = torch.empty_like(memory).copy_(grad_memory)
            kernel_arguments = [
                *inputs,
                memory,
                *before,
                *_present(saved, hidden),
                grad_outputs,
                grad_hidden,
                grad_memory,
                norms_argument,
            ]
            backward_with_memory[(programs,)](*kernel_arguments, steps, batch, **_settings(arguments))
    summed = None if grad_norms is None else grad_norms.sum(0)
    return Gradients(parts, parts.sum((0, 1)), grad_hidden, grad_memory, summed)
