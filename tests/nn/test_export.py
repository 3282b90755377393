"""Programs of `torch.export`: any number of steps and rows, saved and loaded, and step by step with their state."""

import io
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.utils._pytree import tree_leaves, tree_map

import gyral
from docs.uses import LAYERS

X, N = 3, 4
F64 = torch.float64
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def make(label: str, **options: Any) -> Any:
    return LAYERS[label].make(X, N, dtype=F64, **options).eval()


def drawn(steps: int, rows: int) -> Tensor:
    return torch.randn(steps, rows, X, dtype=F64)


def masks(steps: int, rows: int) -> tuple[Tensor, Tensor]:
    return torch.randint(steps + 1, (rows,)), torch.rand(steps, rows) < 0.3


def exported(layer: Any, with_masks: bool = False) -> Any:
    """Return the module of a program that was exported with 3 steps and 2 rows, saved and loaded."""
    steps, rows = Dim("T", min=1), Dim("B", min=1)
    state = layer.init_state(2)
    arguments: tuple[Any, ...] = (drawn(3, 2), state)
    shapes: tuple[Any, ...] = ({0: steps, 1: rows}, tree_map(lambda _: {1: rows}, state))
    if with_masks:
        arguments += masks(3, 2)
        shapes += ({0: rows}, {0: steps, 1: rows})
    torch.export.save(torch.export.export(layer, arguments, dynamic_shapes=shapes), file := io.BytesIO())
    file.seek(0)
    return torch.export.load(file).module()


def assert_same(found: Any, expected: Any) -> None:
    assert type(found[1]) is type(expected[1])
    torch.testing.assert_close(tree_leaves(found), tree_leaves(expected), **CLOSE)


@pytest.mark.one_of(12)
@pytest.mark.parametrize("label", LAYERS)
def test_a_program_runs_any_number_of_steps_and_continues_from_its_state(label: str) -> None:
    layer = make(label)
    program, inputs = exported(layer), drawn(5, 3)
    whole = layer(inputs)
    assert_same(program(inputs, layer.init_state(3)), whole)
    outputs, state = [], layer.init_state(3)
    for step in inputs:
        output, state = program(step.unsqueeze(0), state)
        outputs.append(output)
    assert_same((torch.cat(outputs), state), whole)
    assert_same(program(inputs[:2, :1], layer.init_state(1)), layer(inputs[:2, :1]))


@pytest.mark.slow
@pytest.mark.parametrize("label", LAYERS)
def test_a_program_takes_lengths_and_starts_of_any_size(label: str) -> None:
    layer = make(label, num_layers=2, bidirectional=True)
    program = exported(layer, with_masks=True)
    for steps, rows in ((1, 1), (2, 3), (7, 2)):
        arguments = drawn(steps, rows), layer.init_state(rows), *masks(steps, rows)
        assert_same(program(*arguments), layer(*arguments))


@pytest.mark.slow
@pytest.mark.parametrize("label", LAYERS)
def test_the_readable_loop_is_one_operator_for_any_number_of_steps(label: str) -> None:
    """Such a program has no operators of Gyral, and gradients too."""
    layer = make(label, backend="reference")
    program, inputs = exported(layer), drawn(5, 3).requires_grad_()
    assert "torch.ops.gyral" not in program.code
    found, expected = program(inputs, layer.init_state(3)), layer(inputs)
    assert_same(found, expected)
    gradients = [torch.autograd.grad(outputs.sin().sum(), inputs)[0] for outputs, _ in (found, expected)]
    torch.testing.assert_close(*gradients, **CLOSE)


@pytest.mark.parametrize("label", ["LANTM", "LSTM"])
def test_an_initial_state_may_be_overwritten(label: str) -> None:
    state = make(label).init_state(3)
    for leaf in tree_leaves(state):
        leaf.detach()[:, 0] = 7
        assert not (leaf[:, 1:] == 7).any()


def test_inputs_with_edges_and_masks_are_arguments_of_a_program() -> None:
    inputs = gyral.MaskedInputs(drawn(3, 2), torch.ones(3, 2, dtype=torch.bool))
    layer = make("NTM")
    any_size = {0: Dim.AUTO, 1: Dim.AUTO}
    shapes = (gyral.MaskedInputs(any_size, any_size),)  # type: ignore[arg-type]
    torch.export.save(torch.export.export(layer, (inputs,), dynamic_shapes=shapes), file := io.BytesIO())
    file.seek(0)
    other = gyral.MaskedInputs(drawn(6, 3), torch.rand(6, 3) < 0.5)
    assert_same(torch.export.load(file).module()(other), layer(other))
