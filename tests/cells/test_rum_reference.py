"""RUM's reference at the edges: half precision, and second derivatives."""

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gyral.cells.rum import RUMCell
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each


@for_each("autocast", [False, True])
@for_each("dtype", [torch.bfloat16, torch.float16])
@for_each("lambd", [0.0, 1.0, 0.5])
def test_trains_and_evaluates_in_half_precision(lambd: float, dtype: torch.dtype, autocast: bool) -> None:
    cell = RUMCell(3, 8, lambd=lambd, eta=1.0, layer_norm=True, zoneout=0.1, activation="tanh")
    model, inputs = Recurrent(lambda _: cell, 3, backend="reference"), torch.randn(6, 4, 3)
    exact, _ = model.eval()(inputs)
    if not autocast:
        model, inputs = model.to(dtype), inputs.to(dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        rounded, state = model(inputs)
        outputs, _ = model.train()(inputs)
        loss = outputs.float().square().mean()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    hidden, *memory = tree_leaves(state)
    assert hidden.dtype == (torch.float32 if autocast else dtype)
    assert all(each.dtype == torch.float32 for each in memory)
    assert (rounded.float() - exact).norm() <= 0.2 * exact.norm()


def test_product_of_hessian_and_vector_equals_finite_differences() -> None:
    cell = RUMCell(3, 4, lambd=0.5, activation="tanh").double()
    model = Recurrent(lambda _: cell, 3)
    inputs, along = torch.randn(2, 4, 2, 3, dtype=torch.float64)

    def slope(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x)[0].square().sum(), x, create_graph=True)
        return (gradient * along).sum(), x

    (product,) = torch.autograd.grad(*slope(inputs))
    step = 1e-5
    expected = (slope(inputs + step * along)[0] - slope(inputs - step * along)[0]).item() / (2 * step)
    assert (product * along).sum().item() == pytest.approx(expected, rel=1e-6)
