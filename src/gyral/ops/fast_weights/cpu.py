"""The kernels of `gyral.ops.fast_weights` for the CPU: fast_weights.cpp, called through ctypes."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from gyral.ops import buffers
from gyral.ops.fast_weights import KINDS, Options, Tensors
from gyral.ops.native import library
from gyral.ops.sequences import project

DTYPES = library.DTYPES
PADDING = 16  # rows of matrices in `memories` are padded to at most a multiple of this, the widest vector

LIBRARY = library.Recurrence(
    Path(__file__).with_name("fast_weights.cpp"),
    ("steps", "batch", "size", "parts_size", "weight_rows", "chunk", "inner_steps", "kind", "threads"),
    ("keep_mean", "rate", "epsilon"),
    (
        "parts", "weight", "norm", "hidden", "memory", "decays", "keep", "drop", "lengths", "starts", "outputs",
        "settled", "memories", "final_hidden", "final_memory", "workspace", "grad_outputs", "grad_hidden",
        "grad_final_memory", "grad_memory", "grad_norm", "grad_bias",
    ),
)  # fmt: skip
prepare = LIBRARY.prepare


class Saved(NamedTuple):
    """What forward saves for backward, which overwrites it: three views of one buffer of the pool.

    Attributes:
        buffer: The buffer.
        parts: (T, B, G), the projected inputs; afterwards their gradient.
        settled: (T, B, S, N), the inputs of the normalizations of fast weights.
        memories: (chunks, B, N, padded N), A before each chunk of steps.
        starts_empty: Whether A is zero before the first step, so that it need not be read.
    """

    buffer: Tensor
    parts: Tensor
    settled: Tensor
    memories: Tensor
    starts_empty: bool


def chunk_size(options: Options, steps: int, size: int) -> int:
    """Return the number of steps after which A is stored."""
    if options.kind == "weinet":
        return min(steps, 16)
    return min(steps, max(32, size // 2))


def forward(options: Options, tensors: Tensors, needs_gradient: bool) -> tuple[tuple[Tensor, Tensor, Tensor], Saved]:
    """Run all steps; return outputs, final h and A, and what `backward` needs."""
    steps, batch, _ = tensors.x.shape
    size = tensors.h0.shape[1]
    shapes = [
        (steps, batch, len(tensors.w_ih)),
        (steps, batch, options.inner_steps, size),
        (-(-steps // chunk_size(options, steps, size)), batch, size, -(-size // PADDING) * PADDING),
    ]
    if options.kind == "weinet" and not needs_gradient:
        shapes[2] = (0,)
    sizes = [math.prod(shape) for shape in shapes]
    buffer = buffers.acquire(sum(sizes), tensors.x)
    parts, settled, memories = (piece.view(shape) for piece, shape in zip(buffer.split(sizes), shapes, strict=True))
    starts_empty = not bool(tensors.a0.any())
    saved = Saved(buffer, parts, settled, memories, starts_empty)
    project(tensors.x, tensors.w_ih, tensors.bias, out=parts)
    results = tensors.x.new_empty(steps, batch, size), torch.empty_like(tensors.h0), torch.empty_like(tensors.a0)
    _run(options, tensors, saved, backward=False, outputs=results[0], final_hidden=results[1], final_memory=results[2])
    return results, saved


def backward(
    options: Options,
    tensors: Tensors,
    outputs: Tensor,
    saved: Saved,
    gradients: tuple[Tensor | None, ...],
    needs: Sequence[bool],
) -> list[Tensor | None]:
    """Return the gradients of `tensors`.

    Args:
        options, tensors: As of `forward`.
        outputs, saved: What `forward` returned.
        gradients: Gradients of the results of `forward`; None stands for zeros.
        needs: Which of `tensors` need a gradient.
    """
    needed = dict(zip(Tensors._fields, needs, strict=True))
    grad_outputs, grad_hidden, grad_memory = (None if g is None else g.contiguous() for g in gradients)
    # the kernel overwrites this one
    hidden = torch.zeros_like(tensors.h0) if grad_hidden is None else grad_hidden.clone()
    memory = torch.empty_like(tensors.a0) if needed["a0"] else None
    # one partial sum per block of rows
    blocks = LIBRARY.blocks(len(hidden))
    bias = tensors.bias.new_zeros(blocks, *tensors.bias.shape)
    norm = None if tensors.norm is None else tensors.norm.new_zeros(blocks, *tensors.norm.shape)
    _run(
        options,
        tensors,
        saved,
        backward=True,
        outputs=outputs,
        grad_outputs=grad_outputs,
        grad_hidden=hidden,
        grad_final_memory=grad_memory,
        grad_memory=memory,
        grad_norm=norm,
        grad_bias=bias,
    )
    parts = saved.parts.flatten(0, 1)
    seen = torch.cat((tensors.h0.unsqueeze(0), outputs[:-1]))  # h before each step
    if options.starts is not None:
        seen.masked_fill_(options.starts.unsqueeze(-1), 0.0)
    if options.drop is not None:
        seen *= options.drop
    return [
        (parts @ tensors.w_ih).view(tensors.x.shape) if needed["x"] else None,
        (tensors.x.flatten(0, 1).T @ parts).T,  # faster than the transposed product
        bias.sum(0),
        (seen.flatten(0, 1).T @ parts[:, : len(tensors.w_hh)]).T,
        None if norm is None else norm.sum(0),
        hidden,
        memory,
    ]


def _run(options: Options, tensors: Tensors, saved: Saved, *, backward: bool, **further: Tensor | None) -> None:
    """Call the library; `further` are further fields of the C++ structure `Arguments`."""
    steps, batch, parts_size = saved.parts.shape
    size, keep = tensors.h0.shape[1], options.keep
    chunk = chunk_size(options, steps, size)
    numbers = {
        "steps": steps,
        "batch": batch,
        "size": size,
        "parts_size": parts_size,
        "weight_rows": len(tensors.w_hh),
        "chunk": chunk,
        "inner_steps": options.inner_steps,
        "kind": KINDS.index(options.kind),
        "keep_mean": keep if isinstance(keep, float) else 0.0,
        "rate": options.rate,
        "epsilon": options.epsilon,
    }
    powers = options.decay ** torch.arange(chunk + 1, dtype=torch.float64)
    fields = {
        "parts": saved.parts,
        "weight": tensors.w_hh,
        "norm": tensors.norm,
        "hidden": tensors.h0,
        "memory": None if saved.starts_empty else tensors.a0,
        "decays": powers.to(tensors.x.dtype),
        "keep": keep if isinstance(keep, Tensor) else None,
        "drop": options.drop,
        "lengths": options.lengths,
        "starts": options.starts,
        "settled": saved.settled,
        "memories": saved.memories if saved.memories.numel() else None,
    }
    LIBRARY.run(backward, batch, saved.parts, numbers, fields | further)
