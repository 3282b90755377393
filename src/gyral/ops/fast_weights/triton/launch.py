"""The Python functions that launch the kernels."""

import functools
import math
import sys
from typing import Any

import torch
import triton

from gyral.ops.fast_weights import LARGEST, OPERATOR, too_large
from gyral.ops.fast_weights.triton.attention import backward_fast_weights, forward_fast_weights
from gyral.ops.fast_weights.triton.step import Config
from gyral.ops.fast_weights.triton.weinet import backward_weinet, forward_weinet
from gyral.ops.native.kernels import before_chunks, rows
from gyral.ops.native.products import project, project_backward, recurrent_gradient
from gyral.ops.operator import KernelUnavailableError
from gyral.ops.sequences import reachable_since, split_keep
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
CHUNKS = {"relu": 32, "tanh": 32, "weinet": 16}  # steps after which A is stored
ON_CHIP = 128  # the largest N for which A is in registers in the forward pass
RESIDENT = 64  # the largest N for which the recurrent weights are in registers in all kernels, and all matrices in some
TILE = 4096  # elements of the part of another matrix that a program reads at once
SMALLEST_BLOCK = 16
SMALLEST_LOGARITHM = -1e30  # stands for that of a decay of 0


def _settings(a: Any) -> tuple[Config, int]:
    """Return the settings of a kernel, and the warps of a program."""
    size, (mask, _) = a.h0.shape[1], split_keep(a.keep)
    block = max(triton.next_power_of_2(size), SMALLEST_BLOCK)
    zoneout = "none" if a.keep is None else "probability" if mask is None else "mask"
    config = Config(
        size=size,
        block=block,
        chunk=CHUNKS[a.kind],
        on_chip=block <= ON_CHIP,
        resident=block <= RESIDENT,
        lines=min(max(TILE // block, 1), block),
        zoneout=zoneout,
        activation=a.kind,
        inner_steps=a.inner_steps,
    )
    if block <= 32:
        return config, block * block // 256
    return config, 8 if block > 64 or a.kind == "weinet" else 4


def _given(a: Any) -> tuple[Any, ...]:
    """Return the optional arguments that the kernels of both directions have."""
    return split_keep(a.keep)[0], a.drop, a.lengths, as_bytes(a.starts)


def _numbers(a: Any) -> tuple[Any, ...]:
    """Return the numbers that the kernels of both directions have."""
    steps, batch, _ = a.x.shape
    return steps, batch, split_keep(a.keep)[1], float(a.epsilon)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: vectors of each step, and A before each chunk of steps."""
    (steps, batch, _), size = a.x.shape, a.h0.shape[1]
    if size > LARGEST:
        raise KernelUnavailableError(too_large(size))
    results = [rows(a, size), torch.empty_like(a.h0), torch.empty_like(a.a0)]
    if not a.has_gradient:
        is_kept = a.kind == "weinet" and not _settings(a)[0].on_chip  # the gates, for one step
        return results, [a.h0.new_empty(batch, len(a.w_ih)) if is_kept else None, None]
    vectors = rows(a, len(a.w_ih)) if a.kind == "weinet" else rows(a, a.inner_steps + 1, size)
    return results, [vectors, before_chunks(a.x, steps, CHUNKS[a.kind], batch, size, size)]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    parts, size = rows(a, len(a.w_ih)), a.h0.shape[1]
    project(a.x, a.w_ih, a.b, out=parts)
    outputs, hidden, memory = results
    transposed = torch.empty_like(memory)
    weights = a.w_hh.view(-1, size, size).transpose(1, 2).contiguous()
    before = weights, a.norm, a.h0, a.a0.transpose(1, 2).contiguous()
    given = parts, *before, *_given(a), outputs, hidden, transposed, *saved, *_numbers(a)
    if a.kind == "weinet":
        launch(forward_weinet, len(a.h0), given, *_settings(a))
    else:
        launch(forward_fast_weights, len(a.h0), (*given, float(a.decay), float(a.rate)), *_settings(a))
    memory.copy_(transposed.transpose(1, 2))
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    outputs, (vectors, memories), grad_parts = results[0], saved, rows(a, len(a.w_ih))
    found: dict[str, Any] = {"h0": torch.empty_like(a.h0), "a0": torch.empty_like(a.a0)}
    grad_norm = None if a.norm is None else a.norm.new_empty(len(a.h0), *a.norm.shape)
    first = a.w_hh, a.norm, a.h0, *_given(a)
    memories = memories.view(-1, *a.a0.shape[1:]).transpose(1, 2).contiguous()
    written = *gradients, grad_parts, found["h0"], found["a0"], grad_norm, *_numbers(a)
    if a.kind == "weinet":
        scratch = a.x.new_empty(len(a.h0), CHUNKS[a.kind], *a.a0.shape[1:])
        given = *first, outputs, vectors, memories, scratch, *written
        launch(backward_weinet, len(a.h0), given, *_settings(a))
    else:
        decay = float(a.decay)
        numbers = decay, math.log2(decay) if decay > 0 else SMALLEST_LOGARITHM, float(a.rate)
        given = *first, reachable_since(a.starts, 1), outputs, vectors, memories, *written, *numbers
        launch(backward_fast_weights, len(a.h0), given, *_settings(a))
    found["norm"] = None if grad_norm is None else grad_norm.sum(0)
    found["w_hh"] = recurrent_gradient(grad_parts[..., : len(a.w_hh)], a.h0, outputs, a.starts, a.drop)
    return found | project_backward(grad_parts, a.x, a.w_ih, a.b, needs)


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The examples have two chunks; one has all masks."""
    module, names, batch, size = sys.modules[__name__], OPERATOR.Arguments._fields[1:8], 2, 3
    for kind, is_masked in (("tanh", True), ("weinet", False)):
        steps, is_weinet = CHUNKS[kind] + 1, kind == "weinet"
        parts, products = (7 * size, 4 * size) if is_weinet else (size, size)
        shapes = (
            (steps, batch, 2),
            (parts, 2),
            (parts,),
            (products, size),
            (2, size),
            (batch, size),
            (batch, size, size),
        )
        tensors = [0.5 * waves(device, *shape) for shape in shapes]
        starts = (waves(device, steps, batch) > 0.9) if is_masked else None
        lengths = torch.arange(steps - batch + 1, steps + 1, device=device) if is_masked else None
        drop = waves(device, batch, size) if is_masked else None
        keep = 0.5 * waves(device, steps, batch, size).abs() if is_masked else None
        options = keep, drop, lengths, starts, 0.1, 0.9, 0.5, int(not is_weinet), True
        reason = difference(module, OPERATOR, (kind, *tensors, *options), names)
        if reason is not None:
            return reason
    return None


prepare = preparation("fast weights", _probe)
