"""The kernels of `gyral.ops.gated.sequence` for the CPU: gated.cpp, called through ctypes."""

from pathlib import Path

import torch
from torch import Tensor

from gyral.ops import buffers
from gyral.ops.gated.arguments import KEEPS_PRODUCT, KINDS, Arguments, Gradients, Results
from gyral.ops.native import library

DTYPES = library.DTYPES

LIBRARY = library.Recurrence(
    Path(__file__).with_name("gated.cpp"),
    (
        "steps", "batch", "hidden_size", "cell_state_size", "parts_size", "weight_rows", "kept_size", "extra_size",
        "units", "chunk", "kind", "lag", "layers", "threads",
    ),
    ("keep_mean", "keep_cell_state_mean", "epsilon"),
    (
        "parts", "weight", "extra", "hidden", "cell_state", "keep", "keep_cell_state", "drop", "lengths", "starts",
        "fresh", "fresh_cell_state", "partner", "outputs", "cell_states", "past", "past_cell_states", "kept",
        "final_hidden", "final_cell_state", "workspace", "grad_outputs", "grad_hidden", "grad_cell_state", "grad_extra",
        "grad_fresh", "grad_weight",
    ),
)  # fmt: skip
prepare = LIBRARY.prepare


def forward(arguments: Arguments) -> Results:
    """Run all steps."""
    steps, batch, _ = arguments.parts.shape
    new = arguments.parts.new_empty
    outputs, final_hidden = new(steps, batch, arguments.hidden.shape[1]), torch.empty_like(arguments.hidden)
    cell_states = final_cell_state = None
    if arguments.cell_state is not None:
        cell_states = buffers.acquire(steps * arguments.cell_state.numel(), arguments.cell_state).view(
            steps, *arguments.cell_state.shape
        )
        final_cell_state = torch.empty_like(arguments.cell_state)
    kept = new(steps, batch, arguments.units) if arguments.kind in KEEPS_PRODUCT else None
    _run(
        arguments,
        backward=False,
        outputs=outputs,
        cell_states=cell_states,
        kept=kept,
        final_hidden=final_hidden,
        final_cell_state=final_cell_state,
    )
    return Results(outputs, final_hidden, final_cell_state, cell_states, kept)


def backward(
    arguments: Arguments, results: Results, grad_outputs: Tensor, grad_hidden: Tensor, grad_cell_state: Tensor | None
) -> Gradients:
    """Return the gradients, given the gradients of the results."""
    grad_extra = new_sums(arguments, arguments.extra)
    grad_fresh = new_sums(arguments, arguments.fresh)
    grad_weight = new_sums(arguments, None if arguments.partner is None else arguments.weight_hh)
    # the kernel overwrites these
    grad_hidden = grad_hidden.clone(memory_format=torch.contiguous_format)
    grad_cell_state = None if grad_cell_state is None else grad_cell_state.clone(memory_format=torch.contiguous_format)
    _run(
        arguments,
        backward=True,
        outputs=results.outputs,
        cell_states=results.cell_states,
        kept=results.kept,
        grad_outputs=grad_outputs.contiguous(),
        grad_hidden=grad_hidden,
        grad_cell_state=grad_cell_state,
        grad_extra=grad_extra,
        grad_fresh=grad_fresh,
        grad_weight=grad_weight,
    )
    extra, fresh, weight = (None if sums is None else sums.sum(0) for sums in (grad_extra, grad_fresh, grad_weight))
    return Gradients(arguments.parts, results.kept, grad_hidden, grad_cell_state, extra, fresh, weight)


def new_sums(arguments: Arguments, like: Tensor | None) -> Tensor | None:
    """Return zeros for the partial sums of a gradient, one per block of rows; None for an absent parameter."""
    if like is None:
        return None
    return like.new_zeros(LIBRARY.blocks(arguments.parts.shape[1]), *like.shape)


def _run(arguments: Arguments, *, backward: bool, **tensors: Tensor | None) -> None:
    """Call the library; `tensors` are further fields of the C++ structure `Arguments`."""
    tensors |= {"past": tensors["outputs"], "past_cell_states": tensors["cell_states"]}
    LIBRARY.run(backward, arguments.parts.shape[1], arguments.parts, *fields(arguments, lag=1, **tensors))


def fields(
    arguments: Arguments, *, lag: int, **tensors: Tensor | None
) -> tuple[dict[str, float], dict[str, Tensor | None]]:
    """Return the fields of the C++ structure `Arguments`: numbers, and those of the kernel and `tensors`."""
    steps, batch, parts_size = arguments.parts.shape
    keep, keep_cell_state, kept = arguments.keep, arguments.keep_cell_state, tensors.get("kept")
    tensors |= {
        "parts": arguments.parts,
        "weight": arguments.weight_hh,
        "extra": arguments.extra,
        "hidden": arguments.hidden,
        "cell_state": arguments.cell_state,
        "keep": keep if isinstance(keep, Tensor) else None,
        "keep_cell_state": keep_cell_state if isinstance(keep_cell_state, Tensor) else None,
        "drop": arguments.drop,
        "lengths": arguments.lengths,
        "starts": arguments.starts,
        "partner": arguments.partner,
    }
    if arguments.starts is not None:
        hidden, cell_state, fresh = arguments.hidden, arguments.cell_state, arguments.fresh
        tensors["fresh"] = hidden.new_zeros(hidden.shape[1]) if fresh is None else fresh
        tensors["fresh_cell_state"] = None if cell_state is None else cell_state.new_zeros(cell_state.shape[1])
    numbers = {
        "steps": steps,
        "batch": batch,
        "hidden_size": arguments.hidden.shape[1],
        "cell_state_size": 0 if arguments.cell_state is None else arguments.cell_state.shape[1],
        "parts_size": parts_size,
        "weight_rows": len(arguments.weight_hh) if arguments.partner is None else parts_size,
        "kept_size": 0 if kept is None else kept.shape[2],
        "extra_size": 0 if arguments.extra is None else arguments.extra.numel(),
        "units": arguments.units,
        "chunk": arguments.chunk,
        "kind": KINDS.index(arguments.kind),
        "lag": lag,
        "layers": 0 if arguments.partner is None else len(arguments.partner),
        "keep_mean": keep if isinstance(keep, float) else 0.0,
        "keep_cell_state_mean": keep_cell_state if isinstance(keep_cell_state, float) else 0.0,
        "epsilon": arguments.epsilon,
    }
    return numbers, tensors
