"""The kernels of `gyral.ops.lie_access` for the CPU: lie_access.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.lie_access import FUSED_GROUPS, memory_full_error
from gyral.ops.native import library
from gyral.ops.sequences import project, project_backward

DTYPES = library.DTYPES
SLACK = 16  # entries behind the last one of a log: kernels read whole registers
MEMORY = ("keys", "vectors", "strengths")

KERNEL = library.Kernel(Path(__file__).with_name("lie_access.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: parts, outputs of the heads, flat states before each step, log, windows.

    The log (B, 3 + W, E) has the entries of the memory in the order in which they were written; rows: both coordinates
    of the keys, strengths, elements of the vectors. The windows (T, B, 2) are begin and end of its filled part after
    each step.
    """
    steps, batch, _ = a.x.shape
    _, capacity, width = a.vectors.shape
    new = a.x.new_empty
    state = [torch.empty_like(leaf) for leaf in (a.flat_state, a.keys, a.vectors, a.strengths, a.count)]
    saved = [
        new(steps, batch, len(a.w_ih)),
        new(steps, batch, len(a.head_weight)),
        new(steps, batch, a.flat_state.shape[1]),
        new(batch, 3 + width, steps + capacity + SLACK),
        a.count.new_empty(steps, batch, 2),
    ]
    return [new(steps, batch, len(a.w_ih) // 4), *state], saved


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`.

    Raises:
        OptionError: A vector was written to a full memory that forgets nothing.
    """
    results, saved = allocate(a)
    outputs, flat_state, keys, vectors, strengths, count = results
    parts, _, flat_states, *_ = saved
    project(a.x, a.w_ih, a.b, out=parts)
    flat_states[0] = a.flat_state
    is_full = a.count.new_zeros(1)
    _run(
        a,
        outputs,
        saved,
        backward=False,
        is_full=is_full,
        final_flat_state=flat_state,
        final_keys=keys,
        final_vectors=vectors,
        final_strengths=strengths,
        final_count=count,
    )
    if is_full:
        raise memory_full_error(a.keys.shape[1])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    outputs = results[0]
    grad_outputs, grad_flat_state, *grad_memory, _ = gradients
    # the kernel overwrites it
    flat_state = torch.zeros_like(a.flat_state) if grad_flat_state is None else grad_flat_state.clone()
    memory, given = (a.keys, a.vectors, a.strengths), {}
    if any(gradient is not None for gradient in grad_memory):
        for name, leaf, gradient in zip(MEMORY, memory, grad_memory, strict=True):
            given[f"grad_{name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    needed = any(needs[name] for name in MEMORY)
    initial = {name: torch.empty_like(leaf) if needed else None for name, leaf in zip(MEMORY, memory, strict=True)}
    fresh = None
    if a.fresh is not None:  # one partial sum per block of rows
        fresh = a.fresh.new_zeros(KERNEL.blocks(len(flat_state)), len(a.fresh))
    _run(
        a,
        outputs,
        saved,
        backward=True,
        grad_outputs=grad_outputs,
        grad_flat_state=flat_state,
        grad_fresh=fresh,
        **given,
        **{f"grad_initial_{name}": gradient for name, gradient in initial.items()},
    )
    parts, heads, flat_states, *_ = saved
    rows, heads = parts.flatten(0, 1), heads.flatten(0, 1)
    return project_backward(parts, a.x, a.w_ih, a.b, needs) | {
        "w": rows.T @ flat_states[..., : a.w.shape[1]].flatten(0, 1),
        "head_weight": heads.T @ outputs.flatten(0, 1),
        "head_bias": heads.sum(0),
        "flat_state": flat_state,
        **initial,
        "fresh": None if fresh is None else fresh.sum(0),
    }


def _run(a: Any, outputs: Tensor, saved: list[Any], *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    parts, heads, flat_states, log, windows = saved
    steps, batch, gates = parts.shape
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        hidden_size=gates // 4,
        width=a.vectors.shape[2],
        capacity=a.keys.shape[1],
        log_size=log.shape[2],
        forget=a.forget,
        group=FUSED_GROUPS.index(a.group),
        normalize_steps=a.normalizes,
        softmax=a.softmax,
        read_first=a.read_first,
        parts=parts,
        weight=a.w,
        head_weight=a.head_weight,
        head_bias=a.head_bias,
        heads=heads,
        flat_states=flat_states,
        log=log,
        windows=windows,
        initial_keys=a.keys,
        initial_vectors=a.vectors,
        initial_strengths=a.strengths,
        # the kernel would read beyond the end of the memory
        count=a.count.clamp(0, a.keys.shape[1]),
        write=a.write,
        lengths=a.lengths,
        starts=a.starts,
        fresh=a.fresh,
        outputs=outputs,
        **further,
    )
