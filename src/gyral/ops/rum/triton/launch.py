"""The Python functions that launch the Triton kernels of RUM."""

import functools
import sys
from typing import Any

import torch
import triton
from torch import Tensor

from gyral.ops.compilation import start
from gyral.ops.native.products import cast, project, project_backward, recurrent_gradient
from gyral.ops.operator import count_true
from gyral.ops.rum import OPERATOR
from gyral.ops.rum.triton.blocks import backward_blocks, forward_blocks
from gyral.ops.rum.triton.loop import Loop, stride_of
from gyral.ops.rum.triton.one_row import backward_one_row, forward_one_row
from gyral.ops.rum.triton.step import StepConfig
from gyral.ops.sequences import split_keep
from gyral.ops.triton.launch import difference, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
PRODUCT_DTYPES: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)
CHECKPOINT_EVERY = 1024  # steps between two saved memories for λ = 1
WHOLE = 128  # the largest hidden size of the kernels that run whole sequences
# The largest hidden size of those that keep weights and memory in registers. That of the memory is less by a half
# backward, where there is its gradient, too, and by a half with layer normalization; that of the weights, by a half
# with either a memory or layer normalization.
ON_CHIP = 128
# For λ = 0 they run one row a program, which is faster while the batch has few programs for each multiprocessor.
PROGRAMS_PER_PROCESSOR = 4
BLOCK_BATCH = 16  # rows of a program otherwise: the smallest block of tl.dot
TILE = 2048  # elements in a tile of memory: registers hold several such tiles
WIDE = 1024  # elements that eight warps load at once, 16 bytes of float32 each


def _kind(a: Any, is_forward: bool) -> str:
    """Return which kernels are for these sizes."""
    batch, size = a.h0.shape
    if size > WHOLE:
        return "steps"
    if a.memory is not None:
        limit = ON_CHIP - ON_CHIP // 2 * (not is_forward) - ON_CHIP // 2 * (a.norms is not None)
        return "on_chip" if size <= limit else "tiles"
    is_small = size <= ON_CHIP and batch <= PROGRAMS_PER_PROCESSOR * _processors(a.h0.device)
    return "on_chip" if is_small else "blocks"


def _launch(
    a: Any, is_forward: bool, parts: Tensor, memory: Tensor | None, tensors: list[Tensor | None], *numbers: int
) -> None:
    """Run a kernel.

    Args:
        a: The arguments of `gyral.ops.rum.naive.rum`.
        is_forward: The direction.
        parts, memory: What the kernel reads and overwrites; of the memory, only some kernels overwrite it.
        tensors, numbers: The arguments that only this direction has, in order; None for absent tensors.
    """
    steps, batch, _ = a.x.shape
    mask, keep_mean = split_keep(a.keep)
    dtype, kind = _product_dtype(a), _kind(a, is_forward)
    if kind == "blocks":
        kernel = forward_blocks if is_forward else backward_blocks
    else:
        kernel = forward_one_row if is_forward else backward_one_row
    rows, settings = _settings(
        kind,
        is_forward,
        a.memory is not None,
        dtype == torch.float32,
        # torch refuses to read the older `allow_tf32` where the newer setting was used
        torch.backends.cuda.matmul.fp32_precision if kind == "blocks" else "",
        _config(a),
    )
    arguments = [
        parts,
        _transposed_weights(a, dtype) if kind != "blocks" and is_forward else cast(a.w_hh, dtype),
        a.h0,
        memory,
        a.norms,
        mask if mask is None else mask.float(),
        a.lengths,
        None if a.starts is None else a.starts.view(torch.uint8),
        *tensors,
    ]
    arguments = [parts if tensor is None else tensor for tensor in arguments]
    eta = 1.0 if a.eta is None else float(a.eta)
    with torch.cuda.device_of(parts):
        given = *arguments, *numbers, steps, batch, keep_mean, eta, float(a.epsilon)
        start(kernel, -(-batch // rows), *given, **settings)


def _config(a: Any) -> StepConfig:
    """Return what is fixed when a kernel is compiled."""
    return StepConfig(
        size=a.h0.shape[1],
        recurrent=a.w_hh.shape[0],
        width=a.w_ih.shape[0],
        gated=a.w_hh.shape[0] > a.h0.shape[1],
        normalized=a.norms is not None,
        time_normalized=a.eta is not None,
        has_lengths=a.lengths is not None,
        has_starts=a.starts is not None,
        zoneout="none" if a.keep is None else "probability" if a.keep.dim() == 0 else "mask",
        activation=a.activation,
    )


def loop_of(a: Any) -> Loop:
    """Return the loop over the steps on the host."""
    return Loop(_config(a), _product_dtype(a), CHECKPOINT_EVERY, _processors(a.h0.device))


def _transposed_weights(a: Any, dtype: torch.dtype) -> Tensor:
    """Return the recurrent weights (G − 1, N, N) with rows of input units: sums over these are then rows of outputs."""
    size = a.h0.shape[1]
    transposed = a.w_hh.as_strided((a.w_hh.shape[0] // size, size, size), (size * size, 1, size))
    return transposed.to(dtype, copy=True, memory_format=torch.contiguous_format)


@functools.cache  # Triton's functions of integers take microseconds
def _settings(
    kind: str, is_forward: bool, has_memory: bool, is_float: bool, fp32_precision: str, config: StepConfig
) -> tuple[int, dict[str, Any]]:
    """Return the rows of a program, and the settings that are fixed when a kernel is compiled."""
    size = config.size
    block_size = max(triton.next_power_of_2(size), 16)  # tl.dot's minimum
    settings = {"config": config, "block_size": block_size, "num_stages": 1}
    if kind != "blocks":
        on_chip = has_memory and kind == "on_chip"
        needs_more = has_memory or config.normalized  # registers
        resident = size <= ON_CHIP // 2 or not needs_more
        rows = min(max(TILE // block_size, 1), block_size)
        tile = block_size if on_chip else rows
        warps = 8 if size > 64 else 4 + 4 * needs_more if size > 32 else 1 + 3 * needs_more
        return 1, settings | {
            "has_memory": has_memory,
            "checkpoint_every": CHECKPOINT_EVERY,
            "resident": resident,
            "on_chip": on_chip,
            "block_tile": tile,
            "block_weight": block_size if resident else 4 * rows,
            "groups": min(rows, max(WIDE * (2 - is_float) // block_size, 1)),
            # a tile is loaded and overwritten: no two threads may hold the same element
            "num_warps": min(warps, max(tile * block_size // 32, 1)),
        }
    return BLOCK_BATCH, settings | {
        # three products of TF32 have the errors of one of float32
        "precision": "tf32x3" if is_float and fp32_precision != "tf32" else "tf32",
        "block_batch": BLOCK_BATCH,
        "block_rows": min(max(TILE // 2 // block_size, 1), BLOCK_BATCH),
        "block_in": min(block_size, 32),
        "num_warps": 8,
        "num_stages": 2,
    }


@functools.cache
def _processors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU; 1 for Triton's interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _product_dtype(a: Any) -> torch.dtype:
    """Return the dtype of the factors of products: that of autocast if the kernels support it."""
    return a.product_dtype if a.product_dtype in PRODUCT_DTYPES else a.w_hh.dtype


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The second example has a memory and all masks."""
    steps, batch, size, inputs = 3, 2, 4, 2
    shapes = (steps, batch, inputs), (3 * size, inputs), (2 * size, size), (3 * size,), (batch, size)
    tensors = [waves(device, *shape) for shape in shapes]
    memory = torch.eye(size, device=device).flip(0).repeat(batch, 1, 1)
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    module, names = sys.modules[__name__], OPERATOR.Arguments._fields[:6]
    masked = *tensors, memory, None, None, lengths, starts, "relu", None, 1e-5, None
    plain = *tensors, *[None] * 5, "tanh", 1.0, 1e-5, None
    return difference(module, OPERATOR, plain, names[:5]) or difference(module, OPERATOR, masked, names)


prepare = preparation("RUM", _probe)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: parts (T, B, G N), scales, and for λ = 1 what restores the memory."""
    (steps, batch, _), size, new = a.x.shape, a.h0.shape[1], a.h0.new_empty
    results = [new((steps, batch, size)), new((batch, size)), None, new((steps, batch))]
    saved = [new((steps, batch, a.w_ih.shape[0])), None if a.norms is None else new((steps, batch, 2))]
    if a.memory is None:
        return results, [*saved, None, None, None, None]
    results[2] = new((batch, size, size))
    slots = replaced = None
    width = stride_of(size) if size > WHOLE else size
    if a.starts is not None:
        slots = new((steps, batch), dtype=torch.int64)
        replaced = new((count_true(a.starts), size, width))
    checkpoints = new(((steps - 1) // CHECKPOINT_EVERY, batch, size, width))
    return results, [*saved, new((steps, batch, size)), slots, replaced, checkpoints]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps from the projected inputs; see `gyral.ops.operator.Operator`.

    Args:
        a: The arguments of `gyral.ops.rum.naive.rum`, on a CUDA device, or on any device under Triton's interpreter.
    """
    results, saved = allocate(a)
    parts, scales, *restoring = saved
    dtype = _product_dtype(a)
    if not parts.numel():
        return results, saved
    projected = parts if dtype == parts.dtype else torch.empty_like(parts, dtype=dtype)
    project(a.x, a.w_ih, a.b, out=projected)
    if projected is not parts:
        parts.copy_(projected)
    if restoring[1] is not None:  # the number of each reset, from 0
        torch.cumsum(a.starts.flatten(), 0, out=restoring[1].view(-1)).sub_(1)
    if _kind(a, True) == "steps":
        loop_of(a).forward(a, results, saved)
    else:
        _launch(a, True, parts, a.memory, [*results, scales, *restoring])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`. It overwrites what `forward` has saved."""
    outputs, _, memory, _ = results
    parts, scales, *restoring = saved
    dtype, new = _product_dtype(a), a.h0.new_empty
    grad_outputs, grad_final, grad_final_memory, _ = gradients
    grad_norms = None if a.norms is None else a.norms.new_zeros(len(a.h0), *a.norms.shape)
    if _kind(a, False) == "steps" and parts.numel():
        grad_hidden, grad_memory = loop_of(a).backward(a, results, saved, gradients, grad_norms)
    else:
        grad_hidden = new(a.h0.shape)
        grad_memory = None if memory is None else new(memory.shape)
        if parts.numel():
            if _kind(a, False) == "tiles":  # the kernel overwrites it
                memory = memory.clone()
            written = [grad_hidden, grad_memory, grad_norms]
            tensors = [outputs, scales, *restoring, grad_outputs, grad_final, grad_final_memory, *written]
            given = grad_outputs is not None, grad_final is not None, grad_final_memory is not None
            _launch(a, False, parts, memory, tensors, *map(int, given))
    grad_bias = parts.sum((0, 1))
    products = cast(parts, dtype)
    grad_weight = recurrent_gradient(
        products[..., : a.w_hh.shape[0]], cast(a.h0, dtype), cast(outputs, dtype), a.starts
    )
    return project_backward(products, a.x, a.w_ih, None, needs) | {
        "b": grad_bias,
        "w_hh": cast(grad_weight, a.w_hh.dtype),
        "h0": grad_hidden,
        "memory": grad_memory,
        "norms": None if grad_norms is None else grad_norms.sum(0),
    }
