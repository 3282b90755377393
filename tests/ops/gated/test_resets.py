"""Steps at which a row begins anew, empty batches, and the twin of the kernels in plain torch."""

import functools
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from gyral.cells.full_urnn import FullURNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.urnn import URNNCell
from gyral.cells.weinet import WeiNetCell
from gyral.nn.recurrent import Recurrent
from gyral.ops import gated, unitary
from gyral.ops.gated import cpu as gated_cpu
from gyral.ops.gated import naive
from tests.helpers.kernels import skip_without
from tests.helpers.operators import check_registration
from tests.ops.gated.test_gated import LAYERS, Case, a_case_each, check_equal, every_kind

FEW, MANY = 3, 300

compiled = skip_without(gated_cpu.KERNEL.prepare)


@every_kind
def test_random_resets(kind: str) -> None:
    for seed in range(FEW):
        check_equal(Case(kind, seed, resets=[0.1, 0.5, 1.0][seed]))


@pytest.mark.slow
@a_case_each
def test_hundreds_of_random_resets(kind: str) -> None:
    for seed in range(FEW, FEW + MANY):
        check_equal(Case(kind, seed, resets=[0.01, 0.1, 0.5, 1.0][seed % 4]))


@every_kind
def test_a_reset_at_the_first_step_ignores_the_state(kind: str) -> None:
    case = Case(kind, 3, steps=4, batch=9, hidden=5, ragged=False, resets=0.0)
    assert case.starts is not None
    case.starts[0, :5] = True
    for name, gradient in check_equal(case).items():
        if name.startswith("gradient of initial"):
            assert (gradient[:5] == 0).all()
            assert (gradient[5:] != 0).any()


@every_kind
def test_resets_beyond_the_lengths_change_nothing(kind: str) -> None:
    case = Case(kind, 4, steps=6, batch=11, hidden=7, ragged=True, resets=0.3)
    assert case.starts is not None
    assert case.lengths is not None
    beyond = torch.arange(6)[:, None] >= case.lengths
    found = []
    for value in (True, False):
        case.starts[beyond] = value
        found.append(check_equal(case))
    for name, tensor in found[0].items():
        assert torch.equal(tensor, found[1][name])


@pytest.mark.parametrize("cell_class", [URNNCell, FullURNNCell])
@pytest.mark.parametrize("resets", [0.0, 0.3, 1.0])
def test_a_learned_initial_state_gets_the_gradient_of_the_resets(cell_class: Any, resets: float) -> None:
    torch.manual_seed(1)
    cell = cell_class(3, 5, learned_initial_state=True, zoneout=0.2).double()
    inputs, starts = torch.randn(6, 11, 3).double(), torch.rand(6, 11) < resets
    found = []
    for backend in ("reference", "fused"):
        torch.manual_seed(2)
        outputs, _ = Recurrent(lambda _: cell, 3, backend=backend)(inputs, None, torch.arange(11) % 6 + 1, starts)
        found.append([outputs, *torch.autograd.grad(outputs.sin().sum(), list(cell.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@every_kind
def test_an_empty_batch(kind: str) -> None:
    for ragged in (False, True):
        case = Case(kind, 1, steps=3, batch=0, ragged=ragged, resets=0.5)
        for name, tensor in check_equal(case).items():
            assert tensor.sum() == 0, name


def test_an_empty_batch_on_the_layer_of_torch() -> None:
    model = Recurrent(lambda width: LSTMCell(width, 4), 3, backend="fused")
    outputs, _ = model(torch.randn(5, 0, 3))
    assert outputs.shape == (5, 0, 4)
    outputs.sum().backward()
    assert all((parameter.grad == 0).all() for parameter in model.parameters())


@pytest.mark.parametrize(
    "cell_class", [*(functools.partial(cell, layer_norm=True) for cell in (LSTMCell, GORUCell)), WeiNetCell]
)
def test_the_epsilon_of_layer_normalization(cell_class: Any) -> None:
    torch.manual_seed(1)
    inputs, found = torch.randn(5, 4, 3).double(), []
    for epsilon in (1e-5, 0.1):
        torch.manual_seed(1)
        cell = cell_class(3, 6, layer_norm_eps=epsilon).double()
        results = []
        for backend in ("reference", "fused"):
            outputs, _ = Recurrent(lambda _, cell=cell: cell, 3, backend=backend)(inputs)
            results.append([outputs, *torch.autograd.grad(outputs.sin().sum(), list(cell.parameters()))])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        found.append(results[1][0])
    assert not torch.allclose(*found)


# ---------------------------------------------------------------- the twin in plain torch


def arguments_of(kind: str, seed: int, **sizes: int) -> dict[str, Any]:
    """Draw the arguments of the twin, with every option that the kernels have."""
    has_layers, kind = kind in LAYERS, LAYERS.get(kind, kind)
    pick, generator = random.Random(f"{kind} {seed}"), torch.Generator().manual_seed(seed)
    draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)

    def mask(*shape: int) -> Tensor:
        return (torch.rand(shape, generator=generator) < 0.3).double()

    drawn = {"steps": pick.choice([1, 2, 5]), "batch": pick.choice([0, 1, 7, 9]), "units": pick.choice([2, 3, 8, 17])}
    steps, batch, units = (drawn | sizes).values()
    chunk = pick.randint(1, units - 1) if kind == "on_lstm" else 1
    hidden = {"complex_modrelu": 2 * units}.get(kind, units)
    has_cell = kind in ("on_lstm", "lstm", "normalized_lstm")
    cell = units if has_cell else None
    gates = {
        "modrelu": 1,
        "complex_modrelu": 2,
        "goru": 3,
        "normalized_goru": 3,
        "gru": 3,
        "rnn_tanh": 1,
        "rnn_relu": 1,
    }
    width = gates.get(kind, 4) * units + (2 * -(-units // chunk) if kind == "on_lstm" else 0)
    extra = {
        "gru": draw(units) if pick.random() < 0.5 else None,
        "normalized_lstm": draw(10 * units),
        "normalized_goru": draw(5 * units),
    } | dict.fromkeys(("modrelu", "complex_modrelu", "goru"), draw(units))
    weight = draw(width, hidden) / hidden
    partner = None
    if has_layers:
        partner = unitary.tunable_pairing(units, pick.randint(1, 4)).partner
        weight = draw(2, len(partner), hidden)
    zoneout = (None, torch.tensor(0.3, dtype=torch.float64), mask(steps, batch, hidden))
    return {
        "kind": kind,
        "x": draw(steps, batch, 2),
        "w_ih": draw(width, 2),
        "b": draw(width) if pick.random() < 0.7 else None,
        "w_hh": weight,
        "extra": extra.get(kind),
        "h0": draw(batch, hidden),
        "c0": None if cell is None else draw(batch, cell),
        "fresh": draw(hidden) if pick.random() < 0.7 else None,
        "keep": pick.choice(zoneout),
        "keep_cell_state": pick.choice(zoneout) if "lstm" in kind and kind != "on_lstm" else None,
        "drop": pick.choice((None, mask(batch, hidden))),
        "lengths": torch.randint(1, steps + 1, (batch,), generator=generator) if pick.random() < 0.5 else None,
        "starts": torch.rand(steps, batch, generator=generator) < pick.choice([0.0, 0.2, 1.0]),
        "partner": partner,
        "units": units,
        "chunk": chunk,
        "epsilon": pick.choice([1e-5, 1e-2]),
        "b_hh": draw(width) if kind in ("lstm", "rnn_tanh", "rnn_relu") and pick.random() < 0.7 else None,
    }


DIFFERENTIABLE = ("x", "w_ih", "b", "w_hh", "extra", "h0", "c0", "fresh")


def with_gradients(given: dict[str, Any]) -> tuple[dict[str, Any], list[Tensor]]:
    """Return the arguments with copies of the tensors that have a gradient, and these copies."""
    copies = {name: given[name].clone().requires_grad_() for name in DIFFERENTIABLE if given[name] is not None}
    return given | copies, list(copies.values())


def run(function: Any, given: dict[str, Any]) -> list[Tensor]:
    return [value for value in function(**given) if value is not None]


def derivatives(values: list[Tensor], leaves: list[Tensor], **options: Any) -> tuple[Tensor, ...]:
    total = sum(value.sin().sum() for value in values)
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True, **options)


@every_kind
def test_the_kernels_equal_the_twin(kind: str) -> None:
    for seed in range(FEW):
        found = []
        for function in (gated.gated, naive.gated):
            given, leaves = with_gradients(arguments_of(kind, seed))
            values = run(function, given)
            found.append([*values, *derivatives(values, leaves)])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@every_kind
def test_second_derivatives(kind: str) -> None:
    given, leaves = with_gradients(arguments_of(kind, 1, steps=2, batch=2, units=3))
    names = [name for name in DIFFERENTIABLE if given[name] is not None]

    def function(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(run(gated.gated, given | dict(zip(names, leaves, strict=True))))

    assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True)


def test_tensors_that_depend_on_each_other_have_second_derivatives() -> None:
    """The arguments of a sequence may be functions of each other, or the same tensor."""
    given = arguments_of("rnn_tanh", 1, steps=3, batch=2, units=3)
    weight = given["w_hh"].requires_grad_()
    found = []
    for function in (gated.gated, naive.gated):
        values = run(function, given | {"w_hh": weight.sin(), "w_ih": weight.sin()[:, :2], "h0": weight[:2]})
        (gradient,) = derivatives(values, [weight], create_graph=True)
        found.append([gradient, *derivatives([gradient], [weight])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- for compilers


@pytest.mark.slow
@a_case_each
def test_the_operators_are_registered_correctly(kind: str) -> None:
    for seed in (1, 2, 4):
        given, _ = with_gradients(arguments_of(kind, seed) | {"lengths": None})  # beyond them, no value is defined
        check_registration(gated.OPERATOR.forward_operator, tuple(given.values()))


@pytest.mark.slow
@a_case_each
def test_compiled_and_exported_cells_equal_eager_mode(kind: str) -> None:
    torch._dynamo.reset()
    case = Case(kind, 8, steps=5, batch=9, hidden=6, ragged=True, resets=0.2, training=False)
    model = Recurrent(lambda _: case.cell, 1, backend="fused").eval()
    given = (case.inputs.requires_grad_(), (case.state,), case.lengths, case.starts)
    found = []
    for function in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        outputs, (final,) = function(*given)
        values = [outputs, *final]
        found.append([*values, *derivatives(values, [case.inputs, *case.cell.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    exported = torch.export.export(model, given).module()
    torch.testing.assert_close(exported(*given)[0], found[0][0], rtol=1e-12, atol=1e-12)
