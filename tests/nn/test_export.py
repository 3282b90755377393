"""Programs of `torch.export`: any number of steps and rows, saved and loaded, and step by step with their state."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.utils._pytree import tree_leaves, tree_map

import gyral
from docs.uses import COMPLEX, LAYERS
from gyral.core.errors import UserError

X, N = 3, 4
F64 = torch.float64
# layers of different families, for compilers that take long
DEPLOYED = ("LSTM", "GRU", "RUM", "LRU", "MinGRU", "GatedDeltaNet", "Mamba", "SLSTM", "LightConv", "MLSTM")
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def make(label: str, **options: Any) -> Any:
    return LAYERS[label].make(X, N, dtype=F64, **options).eval()


def drawn(steps: int, rows: int) -> Tensor:
    return torch.randn(steps, rows, X, dtype=F64)


def masks(steps: int, rows: int) -> tuple[Tensor, Tensor]:
    return torch.randint(steps + 1, (rows,)), torch.rand(steps, rows) < 0.3


def program_of(layer: Any, with_masks: bool = False) -> torch.export.ExportedProgram:
    """Return a program that was exported with 3 steps and 2 rows."""
    steps, rows = Dim("T", min=1), Dim("B", min=1)
    state = tree_map(torch.detach, layer.init_state(2))
    arguments: tuple[Any, ...] = (drawn(3, 2), state)
    shapes: tuple[Any, ...] = ({0: steps, 1: rows}, tree_map(lambda _: {1: rows}, state))
    if with_masks:
        arguments += masks(3, 2)
        shapes += ({0: rows}, {0: steps, 1: rows})
    return torch.export.export(layer, arguments, dynamic_shapes=shapes)


def exported(layer: Any, with_masks: bool = False) -> Any:
    """Return the module of a program that was saved and loaded."""
    torch.export.save(program_of(layer, with_masks), file := io.BytesIO())
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
    if label in COMPLEX:
        with pytest.raises(UserError, match=r"^a loop over complex numbers cannot be exported for any number of steps"):
            program_of(layer)
        return
    program, inputs = exported(layer), drawn(5, 3).requires_grad_()
    assert "torch.ops.gyral" not in program.code
    found, expected = program(inputs, layer.init_state(3)), layer(inputs)
    assert_same(found, expected)
    gradients = [torch.autograd.grad(outputs.sin().sum(), inputs)[0] for outputs, _ in (found, expected)]
    torch.testing.assert_close(*gradients, **CLOSE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own
@pytest.mark.parametrize(("label", "backend"), [*((label, "auto") for label in DEPLOYED), ("GRU", "reference")])
def test_inductor_compiles_a_program_ahead_of_time(label: str, backend: str, tmp_path: Path) -> None:
    layer = make(label, backend=backend)
    with torch.no_grad():
        path = torch._inductor.aoti_compile_and_package(program_of(layer), package_path=str(tmp_path / "layer.pt2"))
        package = torch._inductor.aoti_load_package(path)
        for steps, rows in ((1, 1), (5, 2), (70, 4)):
            inputs, state = drawn(steps, rows), layer.init_state(rows)
            assert_same(package(inputs, state), layer(inputs, state))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # its own
@pytest.mark.parametrize("label", DEPLOYED)
def test_executorch_runs_the_readable_loop_step_by_step(label: str) -> None:
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    exir = pytest.importorskip("executorch.exir")
    layer = make(label, backend="reference").float()
    state = layer.init_state(1)
    with torch.no_grad():
        program = torch.export.export(layer, (drawn(1, 1).float(), state))
        # checks of operators would refuse some that the runtime has
        edge = exir.to_edge(program, compile_config=exir.EdgeCompileConfig(_check_ir_validity=False))
        buffer = edge.to_executorch().buffer  # the runtime reads it as long as it runs
        method = runtime.load_program(buffer).load_method("forward")
        for _ in range(3):
            inputs = drawn(1, 1).float()
            found = [leaf.clone() for leaf in method.execute([inputs, *tree_leaves(state)])]
            outputs, state = layer(inputs, state)
            torch.testing.assert_close(found, tree_leaves((outputs, state)), rtol=1e-4, atol=1e-4)


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
