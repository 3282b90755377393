"""The kernels of `gyral.ops.gated` for the CPU: gated.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.gated import KINDS
from gyral.ops.gated.naive import join_biases
from gyral.ops.native import library
from gyral.ops.sequences import project, project_backward, recurrent_gradient, split_keep

# Kinds whose last N columns of the product are not only added to the last columns of P_t; backward needs them.
KEEPS_PRODUCT = ("goru", "normalized_goru", "gru")
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
    return results, [new(steps, batch, a.w_ih.shape[0]), states, kept]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    outputs, hidden, cell_state = results
    parts, *_ = saved
    a = _joined(a)
    project(a.x, a.w_ih, a.b, out=parts)
    _run(a, outputs, saved, backward=False, final_hidden=hidden, final_cell_state=cell_state)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    outputs, *states = results
    parts, _, kept = saved
    joined = _joined(a)
    grad_outputs, *grad_states = gradients
    blocks = KERNEL.blocks(a.x.shape[1])
    extra, fresh, weight = (
        None if like is None else like.new_zeros(blocks, *like.shape)
        for like in (joined.extra, a.fresh, None if a.partner is None else a.w_hh)
    )
    # the kernel overwrites these
    grad_hidden, grad_cell_state = (
        state if state is None else torch.zeros_like(state) if gradient is None else gradient.clone()
        for state, gradient in zip(states, grad_states, strict=True)
    )
    _run(
        joined,
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
        added = a.w_hh.shape[0] - (0 if kept is None else a.units)
        grad_weight = recurrent_gradient(parts[..., :added], *reads)
        if kept is not None:
            grad_weight = torch.cat((grad_weight, recurrent_gradient(kept, *reads)))
    else:
        grad_weight = weight.sum(0)
    found = project_backward(parts, a.x, a.w_ih, a.b, needs)
    grad_bias, grad_extra = found["b"], None if extra is None else extra.sum(0)
    if grad_bias is not None and a.kind == "gru" and grad_extra is not None:
        grad_bias = torch.cat((grad_bias[: -a.units], grad_extra))
    return found | {
        "w_hh": grad_weight,
        "extra": grad_extra,
        "b_hh": None if grad_bias is None or a.b_hh is None else grad_bias.clone(),
        "h0": grad_hidden,
        "c0": grad_cell_state,
        "fresh": None if fresh is None else fresh.sum(0),
    }


def _joined(a: Any) -> Any:
    """Return the arguments with one bias before the steps."""
    b, extra = join_biases(a.kind, a.b, a.b_hh, a.extra, a.units)
    return a._replace(b=b, extra=extra)


def _run(a: Any, outputs: Tensor, saved: list[Any], *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    parts, cell_states, kept = saved
    KERNEL.run(
        backward=backward,
        dtype=outputs.dtype,
        **fields(a, parts),
        outputs=outputs,
        past=outputs,
        cell_states=cell_states,
        past_cell_states=cell_states,
        kept=kept,
        **further,
    )


def fields(a: Any, parts: Tensor, lag: int = 1) -> dict[str, Any]:
    """Return the arguments of the kernel that do not depend on the direction.

    Args:
        a: The arguments of `gyral.ops.gated.naive.gated`, or an object with these attributes but x, w_ih and b.
        parts: (T, B, G).
        lag: The number of steps between the state that a step reads and the one that it makes.
    """
    mask, keep_mean = (None, 0.0) if a.keep is None else split_keep(a.keep)
    cell_state_mask, keep_cell_state_mean = (None, 0.0) if a.keep_cell_state is None else split_keep(a.keep_cell_state)
    fresh, fresh_cell_state, hidden_size = a.fresh, None, a.h0.shape[1]
    if a.starts is not None:
        fresh = a.h0.new_zeros(hidden_size) if fresh is None else fresh
        fresh_cell_state = None if a.c0 is None else a.c0.new_zeros(a.c0.shape[1])
    return {
        "steps": parts.shape[0],
        "batch": parts.shape[1],
        "hidden_size": hidden_size,
        "cell_state_size": 0 if a.c0 is None else a.c0.shape[1],
        "parts_size": parts.shape[2],
        "weight_rows": a.w_hh.shape[0] if a.partner is None else parts.shape[2],
        "kept_size": a.units if a.kind in KEEPS_PRODUCT else 0,
        "extra_size": 0 if a.extra is None else a.extra.numel(),
        "units": a.units,
        "chunk": a.chunk,
        "kind": KINDS.index(a.kind),
        "lag": lag,
        "layers": 0 if a.partner is None else len(a.partner),
        "keep_mean": keep_mean,
        "keep_cell_state_mean": keep_cell_state_mean,
        "epsilon": a.epsilon,
        "parts": parts,
        "weight": a.w_hh,
        "extra": a.extra,
        "hidden": a.h0,
        "cell_state": a.c0,
        "keep": mask,
        "keep_cell_state": cell_state_mask,
        "drop": a.drop,
        "lengths": a.lengths,
        "starts": a.starts,
        "fresh": fresh,
        "fresh_cell_state": fresh_cell_state,
        "partner": a.partner,
    }
