"""The kernels of `gyral.ops.gated` for the CPU: gated.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.gated import KINDS
from gyral.ops.native import library
from gyral.ops.sequences import project, project_backward, recurrent_gradient, split_keep

# Kinds whose last N columns of the product are not only added to the last columns of P_t; backward needs them.
KEEPS_PRODUCT = ("goru", "gru")
DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("gated.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: parts (T, B, G), cell states (T, B, C), kept part of the product (T, B, N)."""
    steps, batch, _ = a.x.shape
    new = a.x.new_empty
    states = None if a.c0 is None else new(steps, *a.c0.shape)
    kept = new(steps, batch, a.units) if a.kind in KEEPS_PRODUCT else None
    results = [new(steps, *a.h0.shape), torch.empty_like(a.h0), None if a.c0 is None else torch.empty_like(a.c0)]
    return results, [new(steps, batch, len(a.w_ih)), states, kept]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    outputs, hidden, cell_state = results
    parts, *_ = saved
    project(a.x, a.w_ih, a.b, out=parts)
    _run(a, outputs, saved, backward=False, final_hidden=hidden, final_cell_state=cell_state)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    outputs, *states = results
    parts, _, kept = saved
    grad_outputs, *grad_states = gradients
    blocks = KERNEL.blocks(a.x.shape[1])
    extra, fresh, weight = (
        None if like is None else like.new_zeros(blocks, *like.shape)
        for like in (a.extra, a.fresh, None if a.partner is None else a.w_hh)
    )
    # the kernel overwrites these
    grad_hidden, grad_cell_state = (
        state if state is None else torch.zeros_like(state) if gradient is None else gradient.clone()
        for state, gradient in zip(states, grad_states, strict=True)
    )
    _run(
        a,
        outputs,
        saved,
        backward=True,
        grad_outputs=torch.zeros_like(outputs) if grad_outputs is None else grad_outputs,
        grad_hidden=grad_hidden,
        grad_cell_state=grad_cell_state,
        grad_extra=extra,
        grad_fresh=fresh,
        grad_weight=weight,
    )
    if weight is None:
        # the gradient of the product equals the gradient of the parts, except in the kept part
        reads = a.h0, outputs, a.starts, a.drop, a.fresh
        added = len(a.w_hh) - (0 if kept is None else a.units)
        grad_weight = recurrent_gradient(parts[..., :added], *reads)
        if kept is not None:
            grad_weight = torch.cat((grad_weight, recurrent_gradient(kept, *reads)))
    else:
        grad_weight = weight.sum(0)
    return project_backward(parts, a.x, a.w_ih, a.b, needs) | {
        "w_hh": grad_weight,
        "extra": None if extra is None else extra.sum(0),
        "h0": grad_hidden,
        "c0": grad_cell_state,
        "fresh": None if fresh is None else fresh.sum(0),
    }


def _run(a: Any, outputs: Tensor, saved: list[Any], *, backward: bool, **further: Tensor | None) -> None:
    parts, cell_states, kept = saved
    KERNEL.run(
        backward=backward,
        **fields(a.kind, parts, a.w_hh, a.extra, a.h0, a.c0, a.keep, a.keep_cell_state, a.drop, a.lengths, a.starts,
                 a.fresh, a.partner, a.units, a.chunk, a.epsilon),
        outputs=outputs,
        past=outputs,
        cell_states=cell_states,
        past_cell_states=cell_states,
        kept=kept,
        **further,
    )  # fmt: skip


def fields(
    kind: str,
    parts: Tensor,
    w_hh: Tensor,
    extra: Tensor | None,
    h0: Tensor,
    c0: Tensor | None,
    keep: Tensor | None,
    keep_cell_state: Tensor | None,
    drop: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    fresh: Tensor | None,
    partner: Tensor | None,
    units: int,
    chunk: int,
    epsilon: float,
    lag: int = 1,
) -> dict[str, Any]:
    """Return the arguments of the kernel that do not depend on the direction."""
    mask, keep_mean = split_keep(keep)
    cell_state_mask, keep_cell_state_mean = split_keep(keep_cell_state)
    fresh_cell_state = None
    if starts is not None:
        fresh = h0.new_zeros(h0.shape[1]) if fresh is None else fresh
        fresh_cell_state = None if c0 is None else c0.new_zeros(c0.shape[1])
    return {
        "steps": parts.shape[0],
        "batch": parts.shape[1],
        "hidden_size": h0.shape[1],
        "cell_state_size": 0 if c0 is None else c0.shape[1],
        "parts_size": parts.shape[2],
        "weight_rows": len(w_hh) if partner is None else parts.shape[2],
        "kept_size": units if kind in KEEPS_PRODUCT else 0,
        "extra_size": 0 if extra is None else extra.numel(),
        "units": units,
        "chunk": chunk,
        "kind": KINDS.index(kind),
        "lag": lag,
        "layers": 0 if partner is None else len(partner),
        "keep_mean": keep_mean,
        "keep_cell_state_mean": keep_cell_state_mean,
        "epsilon": epsilon,
        "parts": parts,
        "weight": w_hh,
        "extra": extra,
        "hidden": h0,
        "cell_state": c0,
        "keep": mask,
        "keep_cell_state": cell_state_mask,
        "drop": drop,
        "lengths": lengths,
        "starts": starts,
        "fresh": fresh,
        "fresh_cell_state": fresh_cell_state,
        "partner": partner,
    }
