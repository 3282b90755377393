"""RUM at the edges, on the reference and on the fused path: precision, second derivatives, tiny vectors, no rows."""

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gyral.cells.rum import RUMCell
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

STEPS, BATCH, X, N = 6, 4, 3, 8


@for_each("autocast", [False, True])
@for_each("dtype", [torch.bfloat16, torch.float16])
@for_each("lambd", [0.0, 1.0, 0.5])
def test_trains_and_evaluates_in_half_precision(lambd: float, dtype: torch.dtype, autocast: bool) -> None:
    cell = RUMCell(X, N, lambd=lambd, eta=1.0, layer_norm=True, zoneout=0.1, activation="tanh")
    model = Recurrent(lambda _: cell, X, backend="reference")
    inputs = torch.randn(STEPS, BATCH, X)
    exact, _ = model.eval()(inputs)
    if not autocast:
        model, inputs = model.to(dtype), inputs.to(dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        rounded, state = model(inputs)
        outputs, _ = model.train()(inputs)
        loss = outputs.float().square().mean()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert all(leaf.dtype == (torch.float32 if autocast else dtype) for leaf in tree_leaves(state))
    assert (rounded.float() - exact).norm() <= 0.2 * exact.norm()


def test_product_of_hessian_and_vector_equals_finite_differences() -> None:
    cell = RUMCell(X, 4, lambd=0.5, activation="tanh").double()
    model = Recurrent(lambda _: cell, X)
    inputs, along = torch.randn(2, 4, 2, X, dtype=torch.float64)

    def slope(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x)[0].square().sum(), x, create_graph=True)
        return (gradient * along).sum(), x

    (product,) = torch.autograd.grad(*slope(inputs))
    step = 1e-5
    expected = (slope(inputs + step * along)[0] - slope(inputs - step * along)[0]).item() / (2 * step)
    assert (product * along).sum().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.parametrize(
    ("dtype", "exponents"), [(torch.float32, range(-22, -13)), (torch.float64, (-160, -140, -110))]
)
def test_tiny_embedded_inputs(dtype: torch.dtype, exponents: range | tuple[int, ...], lambd: float) -> None:
    """Both backends agree on what counts as zero, and have finite gradients."""
    cell = RUMCell(N, N, lambd=lambd, activation="tanh").to(dtype)
    with torch.no_grad():
        cell.weight_ih[-N:] = torch.eye(N)
        cell.weight_ih[:-N] = 0
    if reason := cell.fused_unsupported_reason():
        pytest.skip(reason)
    state = cell.init_state(1)._replace(hidden=torch.randn(1, N, dtype=dtype))
    for exponent in exponents:
        found = []
        x = torch.nn.functional.normalize(torch.randn(1, 1, N, dtype=dtype), dim=-1)
        x = (x * torch.tensor(10.0, dtype=torch.float64).pow(exponent)).to(dtype).requires_grad_()
        for backend in ("reference", "fused"):
            outputs, _ = Recurrent(lambda _: cell, N, backend=backend)(x, (state,))
            (gradient,) = torch.autograd.grad(outputs.sum(), x)
            assert gradient.isfinite().all()
            found.append(gradient)
        torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4 * found[0].abs().max().item())


@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize("lambd", [0.0, 1.0])
def test_an_empty_batch(lambd: float, backend: str) -> None:
    cell = RUMCell(X, N, lambd=lambd, layer_norm=True, eta=1.0)
    if backend == "fused" and (reason := cell.fused_unsupported_reason()):
        pytest.skip(reason)
    model = Recurrent(lambda _: cell, X, backend=backend)
    inputs = torch.randn(STEPS, 0, X, requires_grad=True)
    outputs, state = model(inputs, starts=torch.zeros(STEPS, 0, dtype=torch.bool))
    assert outputs.shape == (STEPS, 0, N)
    assert all(len(leaf) == 0 for leaf in tree_leaves(state))
    gradients = torch.autograd.grad(outputs.sum(), [inputs, *cell.parameters()], materialize_grads=True)
    assert not any(gradient.any() for gradient in gradients)
