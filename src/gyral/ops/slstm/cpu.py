"""The kernels of `gyral.ops.slstm` for the CPU: slstm.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library
from gyral.ops.sequences import recurrent_gradient
from gyral.ops.slstm.naive import State, lowest_scale

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("slstm.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs and final state, and saved: sums of the gates (T, B, 4N), and c, n and m (T, B, 3N)."""
    steps, batch, _ = a.projected.shape
    size, new = a.hidden.shape[1], a.projected.new_empty
    results = [new(steps, batch, size), *(torch.empty_like(a.hidden) for _ in State._fields)]
    return results, [torch.empty_like(a.projected), new(steps, batch, 3 * size)]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(a, results, saved, backward=False)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    grad_projected = torch.empty_like(a.projected)
    # the kernel overwrites these
    grad_state = {
        f"grad_{name}": torch.zeros_like(a.hidden) if gradient is None else gradient.clone()
        for name, gradient in zip(State._fields, gradients[1:], strict=True)
    }
    further = {"grad_outputs": gradients[0], "grad_projected": grad_projected}
    _run(a, results, saved, backward=True, **further, **grad_state)
    return {
        "projected": grad_projected,
        "weight_hh": _weight_gradient(a, results[0], grad_projected) if needs["weight_hh"] else None,
        **{name: grad_state[f"grad_{name}"] for name in State._fields},
    }


def _weight_gradient(a: Any, outputs: Tensor, grad_projected: Tensor) -> Tensor:
    """Return the gradient of R (H, 4, d, d): a product for each head."""
    heads, _, width, _ = a.weight_hh.shape
    of_heads = grad_projected.unflatten(2, (4, heads, width))
    found = [
        recurrent_gradient(of_heads[:, :, :, head].flatten(2), hidden, before, a.starts)
        for head, (hidden, before) in enumerate(zip(a.hidden.split(width, 1), outputs.split(width, 2), strict=True))
    ]
    return torch.stack(found).view_as(a.weight_hh)


def _run(a: Any, results: list[Any], saved: list[Any], *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    outputs, *final = results
    steps, batch, size = outputs.shape
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        size=size,
        heads=len(a.weight_hh),
        lowest=lowest_scale(outputs.dtype),
        projected=a.projected,
        weight=a.weight_hh,
        **{name: getattr(a, name) for name in State._fields},
        lengths=a.lengths,
        starts=a.starts,
        outputs=outputs,
        sums=saved[0],
        states=saved[1],
        **{f"final_{name}": value for name, value in zip(State._fields, final, strict=True)},
        **further,
    )
