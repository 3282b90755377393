"""The kernels of `gyral.ops.fast_weights` for the CPU: fast_weights.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.fast_weights import KINDS
from gyral.ops.native import library
from gyral.ops.sequences import project, project_backward, recurrent_gradient, split_keep

DTYPES = library.DTYPES
PADDING = 16  # rows of matrices in `memories` are padded to at most a multiple of this, the widest vector

KERNEL = library.Kernel(Path(__file__).with_name("fast_weights.cpp"))
prepare = KERNEL.prepare


def chunk_size(kind: str, steps: int, size: int) -> int:
    """Return the number of steps after which A is stored."""
    return min(steps, 16 if kind == "weinet" else max(32, size // 2))


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: parts (T, B, G), settled (T, B, S, N), memories (chunks, B, N, padded N).

    Settled are the inputs of the normalizations of fast weights, memories A before each chunk of steps.
    """
    (steps, batch, _), size, new = a.x.shape, a.h0.shape[1], a.x.new_empty
    memories = None
    if a.has_gradient or a.kind != "weinet":
        memories = new(-(-steps // chunk_size(a.kind, steps, size)), batch, size, -(-size // PADDING) * PADDING)
    saved = [new(steps, batch, len(a.w_ih)), new(steps, batch, a.inner_steps, size), memories]
    return [new(steps, batch, size), torch.empty_like(a.h0), torch.empty_like(a.a0)], saved


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    project(a.x, a.w_ih, a.b, out=saved[0])
    _run(a, saved, backward=False, outputs=results[0], final_hidden=results[1], final_memory=results[2])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    outputs, parts = results[0], saved[0]
    grad_outputs, grad_hidden, grad_memory = gradients
    # the kernel overwrites this one
    hidden = torch.zeros_like(a.h0) if grad_hidden is None else grad_hidden.clone()
    memory = torch.empty_like(a.a0) if needs["a0"] else None
    # one partial sum per block of rows
    blocks = KERNEL.blocks(len(hidden))
    bias = a.b.new_zeros(blocks, *a.b.shape)
    norm = None if a.norm is None else a.norm.new_zeros(blocks, *a.norm.shape)
    _run(
        a,
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
    return project_backward(parts, a.x, a.w_ih, None, needs) | {
        "b": bias.sum(0),
        "w_hh": recurrent_gradient(parts[..., : len(a.w_hh)], a.h0, outputs, a.starts, a.drop),
        "norm": None if norm is None else norm.sum(0),
        "h0": hidden,
        "a0": memory,
    }


def _run(a: Any, saved: list[Any], *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    parts, settled, memories = saved
    steps, batch, parts_size = parts.shape
    size = a.h0.shape[1]
    chunk = chunk_size(a.kind, steps, size)
    mask, keep_mean = split_keep(a.keep)
    # most sequences start from zeros, which need not be read
    starts_empty = not bool(a.a0.any())
    powers = a.decay ** torch.arange(chunk + 1, dtype=torch.float64)
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        size=size,
        parts_size=parts_size,
        weight_rows=len(a.w_hh),
        chunk=chunk,
        inner_steps=a.inner_steps,
        kind=KINDS.index(a.kind),
        keep_mean=keep_mean,
        rate=a.rate,
        epsilon=a.epsilon,
        parts=parts,
        weight=a.w_hh,
        norm=a.norm,
        hidden=a.h0,
        memory=None if starts_empty else a.a0,
        decays=powers.to(a.x.dtype),
        keep=mask,
        drop=a.drop,
        lengths=a.lengths,
        starts=a.starts,
        settled=settled,
        memories=memories,
        **further,
    )
