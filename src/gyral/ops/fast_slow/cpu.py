"""The kernels of `gyral.ops.fast_slow` for the CPU: fast_slow.cpp, called through ctypes."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops import gated
from gyral.ops.fast_slow.naive import SLOW
from gyral.ops.native import library
from gyral.ops.rum import cpu as rum_cpu

DTYPES = library.DTYPES
NOTHING, INPUT = -1, -2  # sources of a subcell's input other than an earlier subcell

KERNEL = library.Kernel(Path(__file__).with_name("fast_slow.cpp"))


def prepare(device: torch.device) -> None:
    """Compile the kernels on first use; see `gyral.ops.native.library.Kernel.prepare`."""
    KERNEL.prepare()
    gated.KERNELS.prepare()
    rum_cpu.KERNEL.prepare()


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved of each subcell: parts, outputs, cell states, scalars, kept part of the product.

    The outputs of the last subcell are a result.
    """
    steps, batch, _ = a.x.shape
    new = a.x.new_empty
    parts, outputs, cell_states, scalars, kept = [], [], [], [], []
    for index, kind in enumerate(a.kinds.split()):
        hidden, cell_state = _state(a, index)
        parts.append(new(steps, batch, len(a.weights[4 * index])))
        outputs.append(new(steps, *hidden.shape))
        cell_states.append(None if cell_state is None else new(steps, *cell_state.shape))
        scalars.append(new(steps, batch, rum_cpu.scalars_size()) if kind == "rum" else None)
        kept.append(new(steps, batch, a.units[index]) if kind in gated.KEEPS_PRODUCT else None)
    results = [outputs[-1], *(None if leaf is None else torch.empty_like(leaf) for leaf in a.states)]
    cosines = new(len(a.units), steps, batch) if "rum" in a.kinds.split() else None
    return [*results, cosines], [*parts, *cell_states, *scalars, *kept, *outputs[:-1]]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _, *final, cosines = results
    further = [_last(a, index, {"final_hidden": final[::2], "final_cell_state": final[1::2]}) for index in _indices(a)]
    _run(a, results[0], saved, further, backward=False)
    if cosines is not None:
        cosines.fill_(1.0)
        for index, scalars in enumerate(_of_subcells(a, saved, results[0]).scalars):
            if scalars is not None:
                cosines[index] = scalars[..., 2]
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    grad_outputs, *grad_states, _ = gradients
    outputs = results[0]
    # the kernel overwrites these
    states = [
        None if leaf is None else torch.zeros_like(leaf) if gradient is None else gradient.clone()
        for leaf, gradient in zip(a.states, grad_states, strict=True)
    ]
    further: list[dict[str, Any]] = []
    sums: list[Any] = []
    for index in _indices(a):
        further.append(_last(a, index, {"grad_h0": states[::2], "grad_c0": states[1::2]}))
        extra, parts = a.weights[4 * index + 3], saved[index]
        if a.kinds.split()[index] == "rum":
            further[-1]["grad_bias"], grad_extra = rum_cpu.new_sums(parts, _state(a, index)[0], extra)
            further[-1]["grad_norms"] = grad_extra
        else:
            blocks = gated.KERNELS.kernel.blocks(parts.shape[1])
            grad_extra = None if extra is None else extra.new_zeros(blocks, *extra.shape)
            further[-1]["grad_extra"] = grad_extra
        sums.append(grad_extra)
    grad_outputs = torch.zeros_like(outputs) if grad_outputs is None else grad_outputs
    grad_x = torch.empty_like(a.x) if needs["x"] else None
    grad_weights = [
        (torch.zeros_like(w_ih), w_ih.new_zeros(len(w_ih)), torch.zeros_like(w_hh))
        for w_ih, w_hh in zip(a.weights[::4], a.weights[2::4], strict=True)
    ]
    _run(a, outputs, saved, further, backward=True, grad_outputs=grad_outputs, grad_weights=grad_weights, grad_x=grad_x)
    weights: list[Tensor | None] = []
    for index in _indices(a):
        extra = a.weights[4 * index + 3]
        # one partial sum per block of rows, two for RUM
        weights += [*grad_weights[index], None if extra is None else sums[index].view(-1, *extra.shape).sum(0)]
    return {"x": grad_x, "weights": weights, "states": states}


def _indices(a: Any) -> range:
    return range(len(a.units))


def _state(a: Any, index: int) -> tuple[Tensor, Tensor | None]:
    """Return hidden vector and cell state, before the first step, of the state that a subcell updates."""
    first = 2 * (index == SLOW)
    return a.states[first], a.states[first + 1]


def _predecessor(a: Any, index: int) -> tuple[int, int]:
    """Return the subcell that last updated the state of a subcell, and the number of steps ago: 0 or 1."""
    if index == SLOW:
        return SLOW, 1
    if index == 0:
        return len(a.units) - 1, 1
    return (0 if index == SLOW + 1 else index - 1), 0


def _last(a: Any, index: int, by_state: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the entry of a subcell's state if it is the last one in a step that updates this state."""
    if index not in (SLOW, len(a.units) - 1):
        return {}
    has_cell_state = a.kinds.split()[index] != "rum"
    return {
        name: values[int(index == SLOW)]
        for name, values in by_state.items()
        if has_cell_state or not name.endswith(("cell_state", "c0"))
    }


class SubCells(NamedTuple):
    """Lists with the tensors of each subcell."""

    parts: list[Tensor]
    cell_states: list[Tensor | None]
    scalars: list[Tensor | None]
    kept: list[Tensor | None]
    outputs: list[Tensor]


def _of_subcells(a: Any, saved: list[Any], outputs: Tensor) -> SubCells:
    count = len(a.units)
    parts, cell_states, scalars, kept = (saved[first * count : (first + 1) * count] for first in range(4))
    return SubCells(parts, cell_states, scalars, kept, [*saved[4 * count :], outputs])


def _run(
    a: Any,
    outputs: Tensor,
    saved: list[Any],
    further: list[dict[str, Any]],
    *,
    backward: bool,
    grad_outputs: Tensor | None = None,
    grad_weights: Sequence[tuple[Tensor, ...]] | None = None,
    grad_x: Tensor | None = None,
) -> None:
    """Call the library.

    Args:
        a, outputs, saved: The arguments, a result, and what is saved for backward.
        further: Further arguments of the kernel of each subcell.
        backward: Whether to run backward; the arguments below are given then.
        grad_outputs: (T, B, H).
        grad_weights: For each subcell memory for the gradients of w_ih, b and w_hh.
        grad_x: Memory for the gradient of x, or None if it is not needed.
    """
    subcells = _of_subcells(a, saved, outputs)
    owned, table = [], []  # structures and tensors must outlive the call, which reads their addresses
    for index, kind in enumerate(a.kinds.split()):
        predecessor, lag = _predecessor(a, index)
        w_ih, b, w_hh, extra = a.weights[4 * index : 4 * index + 4]
        mask, keep, keep_cell_state, drop = a.masks[4 * index : 4 * index + 4]
        hidden, cell_state = _state(a, index)
        given = SimpleNamespace(
            **{"kind": kind, "x": a.x, "w_ih": w_ih, "w_hh": w_hh, "extra": extra, "norms": extra},
            **{"h0": hidden, "c0": cell_state},
            **{"keep": keep, "keep_cell_state": keep_cell_state, "drop": drop, "lengths": a.lengths},
            **{"starts": a.starts if lag else None, "fresh": None, "partner": None, "units": a.units[index]},
            **{"chunk": a.chunks[index], "activation": a.activations.split()[index], "eta": a.etas[index]},
            epsilon=a.epsilons[index],
        )
        if kind == "rum":
            kernel, own = rum_cpu.KERNEL, rum_cpu.fields(given, subcells.parts[index], lag)
            own["scalars"] = subcells.scalars[index]
        else:
            kernel, own = gated.KERNELS.kernel, vars(given) | gated.sizes(given)
            own |= {"parts": subcells.parts[index], "lag": lag}
            own["cell_states"], own["past_cell_states"] = (subcells.cell_states[i] for i in (index, predecessor))
            own["kept"] = subcells.kept[index]
        own |= {"outputs": subcells.outputs[index], "past": subcells.outputs[predecessor]} | further[index]
        structure = ctypes.create_string_buffer(kernel.fill(own))
        owned.append((structure, own))
        source = INPUT if index == 0 else index - 1 if index <= SLOW + 1 else NOTHING
        grad_w_ih, grad_b, grad_w_hh = (None, None, None) if grad_weights is None else grad_weights[index]
        pointers = (w_ih, b, mask, grad_w_ih, grad_w_hh, grad_b)
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in pointers]
        flags = [kind == "rum", source, index == SLOW]
        table.append([*flags, ctypes.addressof(structure), *addresses])
    KERNEL.run(
        backward=backward,
        dtype=outputs.dtype,
        steps=len(a.x),
        batch=a.x.shape[1],
        count=len(table),
        input_size=a.x.shape[2],
        product_threads=torch.get_num_threads(),
        subcells=torch.tensor(table, dtype=torch.int64, device="cpu"),
        input=a.x,
        grad_input=grad_x,
        grad_outputs=grad_outputs,
    )
