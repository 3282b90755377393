"""The recurrence of sLSTM (Beck et al., "xLSTM: extended long short-term memory", NeurIPS 2024, section 2.2).

With [i; f; z; o] = projected + R y_{t−1}, R block-diagonal:

m_t = max(log σ(f) + m_{t−1}, i), f' = exp(log σ(f) + m_{t−1} − m_t), i' = exp(i − m_t)
c_t = f' ⊙ c_{t−1} + i' ⊙ tanh(z), n_t = f' ⊙ n_{t−1} + i', y_t = σ(o) ⊙ c_t / n_t
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.declaration import check_shape, product
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.native.products import recurrent_gradient
from gyral.ops.operator import Operator
from gyral.ops.slstm import naive
from gyral.ops.slstm.naive import State, lowest_scale

__all__ = ["lowest_scale", "slstm"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    heads, _, width, _ = check_shape("weight_hh", a.weight_hh, "H", 4, "d", a.weight_hh.shape[-1])
    check_shape("weight_hh", a.weight_hh, heads, 4, width, width)
    check_shape("projected", a.projected, *a.projected.shape[:2], 4 * heads * width)
    for name in State._fields:
        check_shape(name, getattr(a, name), a.projected.shape[1], heads * width)


def sizes(a: Any) -> dict[str, int | float]:
    """Return the numbers that the kernel takes."""
    (steps, batch, _), size = a.projected.shape, a.hidden.shape[1]
    lowest = lowest_scale(a.hidden.dtype)
    return {"steps": steps, "batch": batch, "size": size, "heads": len(a.weight_hh), "lowest": lowest}


def rows(a: Any, factor: int = 1) -> Tensor:
    """Return a tensor (T, B, factor · N) without values."""
    return a.projected.new_empty(*a.projected.shape[:2], factor * a.hidden.shape[1])


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products; see `gyral.ops.declaration.formulas_of`."""
    return 0, product(len(a.projected) * len(a.hidden), a.weight_hh)


class SLSTMKernels(Kernels):
    """The kernels, and the gradient of the recurrent weights R, a product for each head."""

    def backward(self, a: Any, results: list[Any], kept: list[Any], gradients: Any, needs: dict[str, bool]) -> Any:
        """Return the gradients; see `gyral.ops.operator.Operator`."""
        found = super().backward(a, results, kept, gradients, needs)
        if needs["weight_hh"]:
            heads, _, width, _ = a.weight_hh.shape
            of_heads = found["projected"].unflatten(2, (4, heads, width))
            vectors = zip(a.hidden.split(width, 1), results[0].split(width, 2), strict=True)
            found["weight_hh"] = torch.stack(
                [
                    recurrent_gradient(of_heads[:, :, :, head].flatten(2), hidden, outputs, a.starts)
                    for head, (hidden, outputs) in enumerate(vectors)
                ]
            ).view_as(a.weight_hh)
        return found


KERNELS = SLSTMKernels(
    Path(__file__).with_name("slstm.cpp"),
    sizes=sizes,
    results={"outputs": rows, **{f"final_{name}": like(name) for name in State._fields}},
    kept={"sums": like("projected"), "states": lambda a: rows(a, 3)},
    states={name: f"final_{name}" for name in State._fields},
    gradients={"projected": like("projected")},
)
slstm = Operator(naive.slstm, {"cpu": KERNELS, "cuda": "gyral.ops.slstm.triton"}, shapes=shapes, products=products)
