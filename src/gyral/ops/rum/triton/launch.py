"""The Python functions that launch the Triton kernels of RUM."""

import functools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor

from gyral.ops.operator import KernelUnavailableError, count_true
from gyral.ops.rum.triton.step import StepConfig
from gyral.ops.rum.triton.with_memory import backward_with_memory, forward_with_memory
from gyral.ops.rum.triton.without_memory import backward_without_memory, forward_without_memory
from gyral.ops.sequences import cast, project, project_backward, recurrent_gradient, split_keep

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
PRODUCT_DTYPES: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)
CHECKPOINT_EVERY = 1024  # steps between two saved memories for λ = 1
BLOCK_BATCH = 16  # rows of a program for λ = 0 with tl.dot: its smallest block
# Largest hidden sizes at which the weights stay on chip: of programs with one row, which hold them in registers, and of
# programs with several. One row a program is faster while the batch has few programs for each multiprocessor.
RESIDENT_SIZE = {1: 128, BLOCK_BATCH: 64}
PROGRAMS_PER_PROCESSOR = 2
TILE = 4096  # elements in a tile of weights or memory, and in a block of rows: registers hold several such tiles


def _settings(a: Any, is_forward: bool) -> dict[str, Any]:
    """Return the arguments of the kernels other than tensors, T and B."""
    mask, keep_mean = split_keep(a.keep)
    fixed = _fixed_settings(
        is_forward,
        a.memory is not None,
        _block_batch(a),
        _product_dtype(a) == torch.float32,
        torch.backends.cuda.matmul.fp32_precision,
        StepConfig(
            size=a.h0.shape[1],
            recurrent=a.w_hh.shape[0],
            width=a.w_ih.shape[0],
            gated=a.w_hh.shape[0] > a.h0.shape[1],
            normalized=a.norms is not None,
            time_normalized=a.eta is not None,
            has_starts=a.starts is not None,
            zoneout="none" if a.keep is None else "probability" if mask is None else "mask",
            activation=a.activation,
        ),
    )
    eta = 1.0 if a.eta is None else float(a.eta)
    return {**fixed, "keep_probability": keep_mean, "eta": eta, "epsilon": float(a.epsilon)}


@functools.cache  # Triton's functions of integers take microseconds
def _fixed_settings(
    is_forward: bool, has_memory: bool, block_batch: int, is_float: bool, fp32_precision: str, config: StepConfig
) -> dict[str, Any]:
    """Return the settings that are fixed when a kernel is compiled."""
    size = config.size
    if has_memory:
        block_size = triton.next_power_of_2(size)
        tile = min(max(TILE // block_size, 1), block_size)
        warps = 4 if size <= (64 if is_forward else 128) else 8
        return {
            "config": config,
            "checkpoint_every": CHECKPOINT_EVERY,
            "block_size": block_size,
            "block_tile": tile,
            # a tile is loaded and overwritten: no two threads may hold the same element
            "num_warps": min(warps, max(tile * block_size // 32, 1)),
            "num_stages": 1,
        }
    block_size = max(triton.next_power_of_2(size), 16)  # tl.dot's minimum
    resident = size <= RESIDENT_SIZE[block_batch]
    # torch refuses to read the older `allow_tf32` where the newer setting was used
    is_exact = is_float and fp32_precision != "tf32"
    return {
        "config": config,
        "precision": "tf32x3" if is_exact else "tf32",  # three products of TF32 have the errors of one of float32
        "resident": resident,
        "block_batch": block_batch,
        "block_rows": block_batch if resident else min(max(TILE // block_size, 1), BLOCK_BATCH),
        "block_size": block_size,
        "block_out": min(block_size, 256),
        "block_in": min(block_size, 32 if is_float else 64),
        "num_warps": 4 if resident and size <= 64 else 8,
        "num_stages": 1 if resident else 2,
    }


def _block_batch(a: Any) -> int:
    """Return the number of rows of a program for λ = 0."""
    batch, size = a.h0.shape
    return 1 if size <= RESIDENT_SIZE[1] and batch <= PROGRAMS_PER_PROCESSOR * _processors(a.h0.device) else BLOCK_BATCH


@functools.cache
def _processors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU; 1 for Triton's interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _product_dtype(a: Any) -> torch.dtype:
    """Return the dtype of the factors of products: that of autocast if the kernels support it."""
    return a.product_dtype if a.product_dtype in PRODUCT_DTYPES else a.w_hh.dtype


def _shared_arguments(a: Any, lengths: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Any, Tensor]:
    """Return recurrent weights, initial hidden state, norms, keep, lengths and starts as kernel arguments.

    `hidden` stands for absent tensors; `lengths` for the lengths if they are None.
    """
    hidden = cast(a.h0, torch.float32)
    mask, _ = split_keep(a.keep)
    return (
        cast(a.w_hh, _product_dtype(a)),
        hidden,
        hidden if a.norms is None else a.norms.float(),
        hidden if mask is None else mask.float(),
        lengths if a.lengths is None else a.lengths,
        hidden if a.starts is None else a.starts.view(torch.uint8),
    )


def prepare(device: torch.device) -> None:
    """Run the kernels on a small example once per device and process.

    Raises:
        KernelUnavailableError: The kernels do not run on the device.
    """
    reason = _probe(device)
    if reason is not None:
        raise KernelUnavailableError(f"the Triton kernels do not run on {device}: {reason}")


@functools.cache
def _probe(device: torch.device) -> str | None:
    """Return the reason why a small example fails forward or backward, or None if it succeeds."""
    steps, batch, size = 2, 3, 4

    def values(*shape: int) -> Tensor:
        return torch.linspace(-1, 1, math.prod(shape), device=device).view(shape)

    a = SimpleNamespace(
        **{"x": values(steps, batch, 2), "w_ih": values(3 * size, 2), "w_hh": values(2 * size, size)},
        **{"b": values(3 * size), "h0": values(batch, size), "norms": None, "keep": None, "lengths": None},
        **{"starts": None, "activation": "relu", "eta": None, "epsilon": 1e-5, "product_dtype": None},
    )
    try:
        for memory in (None, torch.eye(size, device=device).repeat(batch, 1, 1)):
            a.memory = memory
            results, saved = forward(a)
            gradients = backward(a, results, saved, [values(steps, batch, size), None, None, None], {"x": True})
            if not (results[0].isfinite().all() and gradients["x"].isfinite().all()):
                return "their results are not finite"
    except Exception as error:  # compiler, driver and interpreter raise errors of many types
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    return None


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: parts (T, B, G N), scales, lengths, and for λ = 1 what restores the memory."""
    (steps, batch, _), size, device = a.x.shape, a.h0.shape[1], a.x.device

    def new(*shape: Any) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device)

    results = [new(steps, batch, size), new(batch, size), None, new(steps, batch)]
    lengths = None if a.lengths is not None else torch.full((batch,), steps, dtype=torch.int64, device=device)
    saved = [new(steps, batch, a.w_ih.shape[0]), None if a.norms is None else new(steps, batch, 2), lengths]
    if a.memory is None:
        return results, [*saved, None, None, None, None]
    results[2] = new(batch, size, size)
    slots = replaced = None
    if a.starts is not None:
        slots = torch.empty((steps, batch), dtype=torch.int64, device=device)
        replaced = new(count_true(a.starts), size, size)
    checkpoints = new((steps - 1) // CHECKPOINT_EVERY, batch, size, size)
    return results, [*saved, new(steps, batch, size), slots, replaced, checkpoints]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps from the projected inputs; see `gyral.ops.operator.Operator`.

    For λ = 1 a step reads and writes the associative memory once in global memory; a small one stays in the caches.

    Args:
        a: The arguments of `gyral.ops.rum.naive.rum`, on a CUDA device, or on any device under Triton's interpreter.
    """
    steps, batch, _ = a.x.shape
    results, saved = allocate(a)
    outputs, final_hidden, final_memory, cosines = results
    parts, scales, lengths, *restoring = saved
    if batch == 0:
        return results, saved
    projected = parts if _product_dtype(a) == parts.dtype else torch.empty_like(parts, dtype=_product_dtype(a))
    project(a.x, a.w_ih, a.b, out=projected)
    if projected is not parts:
        parts.copy_(projected)
    weight, hidden, *before = _shared_arguments(a, lengths)
    inputs = (parts, weight, hidden)
    written = (*before, outputs, final_hidden, cosines, hidden if scales is None else scales)
    with torch.cuda.device_of(parts):
        if a.memory is None:
            programs, settings = -(-batch // _block_batch(a)), _settings(a, True)
            forward_without_memory[(programs,)](*inputs, *written, steps, batch, **settings)
            return results, saved
        if a.lengths is not None:
            outputs.zero_()  # the kernel does not write outputs beyond the end of a sequence
        if a.starts is not None:  # the number of each reset, from 0
            torch.cumsum(a.starts.flatten(), 0, out=restoring[1].view(-1)).sub_(1)
        memory = final_memory.copy_(a.memory)
        restoring = _present(restoring, hidden)
        forward_with_memory[(batch,)](*inputs, memory, *written, *restoring, steps, batch, **_settings(a, True))
        return results, saved


def _present(tensors: Sequence[Tensor | None], substitute: Tensor) -> list[Tensor]:
    return [substitute if tensor is None else tensor for tensor in tensors]


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`. It overwrites what `forward` has saved."""
    steps, batch, _ = a.x.shape
    outputs, _, final_memory, _ = results
    parts, scales, lengths, *restoring = saved
    weight, hidden, norms, *others = _shared_arguments(a, lengths)
    programs = batch if a.memory is not None else -(-batch // _block_batch(a))
    # the kernels overwrite the other two
    grad_outputs = torch.zeros_like(outputs) if gradients[0] is None else cast(gradients[0], torch.float32)
    grad_hidden, grad_memory = (
        like if like is None else torch.zeros_like(like) if gradient is None else torch.empty_like(like).copy_(gradient)
        for gradient, like in zip(gradients[1:3], (hidden, final_memory), strict=True)
    )
    grad_norms = None if a.norms is None else norms.new_zeros(programs, *norms.shape)
    norms_argument = hidden if grad_norms is None else grad_norms
    inputs = (parts, weight, hidden)
    before = (norms, *others, outputs, hidden if scales is None else scales)
    with torch.cuda.device_of(parts):
        if batch == 0:
            pass
        elif a.memory is None:
            kernel_arguments = [*inputs, *before, grad_outputs, grad_hidden, norms_argument]
            backward_without_memory[(programs,)](*kernel_arguments, steps, batch, **_settings(a, False))
        else:
            memory = final_memory.clone()
            kernel_arguments = [
                *inputs,
                memory,
                *before,
                *_present(restoring, hidden),
                grad_outputs,
                grad_hidden,
                grad_memory,
                norms_argument,
            ]
            backward_with_memory[(programs,)](*kernel_arguments, steps, batch, **_settings(a, False))
    grad_bias = parts.sum((0, 1))
    products = cast(parts, weight.dtype)
    grad_weight = recurrent_gradient(
        products[..., : weight.shape[0]], cast(a.h0, weight.dtype), cast(outputs, weight.dtype), a.starts
    )
    return project_backward(products, a.x, a.w_ih, None, needs) | {
        "b": grad_bias,
        "w_hh": cast(grad_weight, a.w_hh.dtype),
        "h0": grad_hidden,
        "memory": grad_memory,
        "norms": None if grad_norms is None else grad_norms.sum(0),
    }
