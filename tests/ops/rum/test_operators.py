"""RUM as an operator of torch: torch's own checks, and compiled and exported models against eager mode."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gyral.cells.rum import RUMCell
from gyral.nn.recurrent import Recurrent
from gyral.ops.rum import cpu as rum_cpu
from gyral.ops.rum import naive
from tests.helpers.kernels import skip_without
from tests.helpers.operators import check_registration

compiled = skip_without(rum_cpu.KERNEL.prepare)

STEPS, BATCH, X, N = 4, 3, 2, 5


def arguments(lambd: float, *, with_starts: bool) -> tuple[Any, ...]:
    """Return the arguments of the operator with every option."""
    shapes = (STEPS, BATCH, X), (3 * N, X), (2 * N, N), (3 * N,), (BATCH, N), (3, 2, N)
    *tensors, norms = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    identity = torch.eye(N, dtype=torch.float64).repeat(BATCH, 1, 1).requires_grad_()
    mask = (torch.rand(STEPS, BATCH, N) < 0.3).double()
    # every sequence has all steps, because values for backward are not defined beyond its length
    lengths = torch.full((BATCH,), STEPS)
    starts = torch.rand(STEPS, BATCH) < 0.4 if with_starts else None
    memory = None if lambd == 0 else identity
    return *tensors, memory, norms, mask, lengths, starts, "tanh", 0.7, 1e-5, None


@pytest.mark.slow
@pytest.mark.parametrize("with_starts", [False, True])
@pytest.mark.parametrize("lambd", [0.0, 1.0])
def test_opcheck(lambd: float, with_starts: bool) -> None:
    check_registration(torch.ops.gyral.rum.default, arguments(lambd, with_starts=with_starts))


@pytest.mark.parametrize("lambd", [0.0, 1.0])
def test_second_derivative(lambd: float) -> None:
    """Of the operator itself, called in eager mode."""
    given = arguments(lambd, with_starts=True)
    wanted = [tensor for tensor in given if isinstance(tensor, Tensor) and tensor.requires_grad]

    def slopes(run: Any) -> list[Tensor]:
        first = torch.autograd.grad(sum(value.square().sum() for value in run()), wanted, create_graph=True)
        return [*first, *torch.autograd.grad(sum(gradient.square().sum() for gradient in first), wanted)]

    count = 2 + (lambd == 1)
    by_operator = slopes(lambda: torch.ops.gyral.rum(*given)[:count])
    by_reference = slopes(lambda: naive.rum(*given)[:count])
    torch.testing.assert_close(by_operator, by_reference, rtol=1e-9, atol=1e-9)


def results(model: Any, network: Recurrent, *given: Any) -> list[Tensor]:
    inputs = given[0].clone().requires_grad_()
    outputs, state = model(inputs, None, *given[1:])
    values = [outputs, *tree_leaves(state)]
    gradients = torch.autograd.grad(
        sum(value.square().sum() for value in values), [inputs, *network.parameters()], materialize_grads=True
    )
    return [*values, *gradients]


def make(lambd: float) -> tuple[Recurrent, Tensor, Tensor, Tensor]:
    cell = partial(RUMCell, hidden_size=N, lambd=lambd, layer_norm=True, eta=0.7, zoneout=0.2)
    network = Recurrent(cell, X).double().eval()
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    return network, inputs, torch.tensor([4, 1, 2]), torch.rand(STEPS, BATCH) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_compiled_equals_eager(backend: str, lambd: float) -> None:
    network, *given = make(lambd)
    compiled = torch.compile(network, fullgraph=True, backend=backend)
    torch.testing.assert_close(results(compiled, network, *given), results(network, network, *given))


@pytest.mark.slow
@pytest.mark.parametrize("lambd", [0.0, 1.0])
def test_exported_equals_eager(lambd: float) -> None:
    network, inputs, lengths, starts = make(lambd)
    program = torch.export.export(network, (inputs, None, lengths, starts))
    assert any(node.target is torch.ops.gyral.rum.default for node in program.graph.nodes)
    found, wanted = program.module()(inputs, None, lengths, starts), network(inputs, None, lengths, starts)
    torch.testing.assert_close(found, wanted)
