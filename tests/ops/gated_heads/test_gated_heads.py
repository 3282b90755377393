"""`gyral.ops.gated_heads` against its equation; test_contract.py has what every operator keeps."""

from typing import Any

import torch
from torch import Tensor

from gyral.ops.gated_heads import gated_heads
from gyral.ops.sequences import zero_beyond
from tests.ops.contract import Contract, Named, each


def drawn(steps: int, batch: int, heads: int, value: int, has_skip: bool, silu: bool) -> tuple[Named, Named]:
    width = heads * value
    shapes = {
        "outputs": (steps, batch, heads, value + 1),
        "least": (steps, batch, heads),
        "gate": (steps, batch, width),
        "gain": (width,),
    }
    if has_skip:
        shapes |= {"skip": (width,), "skipped": (steps, batch, width)}
    tensors = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    tensors["least"] = tensors["least"].exp()
    return tensors, {"epsilon": 1e-2, "silu": silu}


def run(starts: Tensor | None, skip: Tensor | None = None, skipped: Tensor | None = None, **given: Any) -> Tensor:
    """Call the operator: its steps are independent of each other, and need no starts."""
    return gated_heads(skip=skip, skipped=skipped, **given)


def by_equation(
    outputs: Tensor,
    least: Tensor,
    gate: Tensor,
    gain: Tensor,
    epsilon: float,
    silu: bool,
    lengths: Tensor | None,
    starts: Tensor | None,
    skip: Tensor | None = None,
    skipped: Tensor | None = None,
) -> Tensor:
    read, norm = outputs[..., :-1], outputs[..., -1].abs()
    h = read / (torch.where(norm > least, norm, least) + 1e-6).unsqueeze(-1)
    h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, unbiased=False, keepdim=True) + epsilon).sqrt()
    h = gain * h.flatten(2) + (0 if skip is None else skip * skipped)
    return zero_beyond(h / (1 + torch.exp(-gate)) * (gate if silu else 1), lengths)


CONTRACT = Contract(
    run=run,
    draw=drawn,
    kinds=each(has_skip=[True, False], silu=[True, False]),
    # T, B, H, V: one number, whose normalized value is zero, vectors around a register, and several blocks of rows
    sizes=[(1, 1, 2, 1), (7, 5, 2, 8), (3, 2, 3, 33), (90, 6, 1, 3)],
    small=(9, 19, 2, 5),
    tiny=(2, 2, 1, 3),
    stride=2,
    apart=3,
    truth=by_equation,
)
