"""WeiNet against its equations, and its parameter counts in the recall table."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gyral.cells.base import AssociativeState
from gyral.cells.weinet import WeiNetCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

X, N, BATCH, STEPS = 4, 6, 3, 7
with_and_without_norm = pytest.mark.parametrize("layer_norm", [True, False], ids=["norm", "plain"])


def randomized(**options: Any) -> WeiNetCell:
    """Return a cell in float64 with every parameter moved, that none is zero or one."""
    cell = WeiNetCell(X, N, **options).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return cell


def random_run() -> tuple[Tensor, AssociativeState]:
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    return inputs, AssociativeState(torch.randn(BATCH, N).double(), torch.randn(BATCH, N, N).double())


def run(
    cell: WeiNetCell, inputs: Tensor, state: AssociativeState, backend: str = "reference"
) -> tuple[Tensor, AssociativeState]:
    model = Recurrent(lambda _: cell, cell.input_size, backend=backend).train(cell.training)
    outputs, (final,) = model(inputs, (state,))
    return outputs, final


def backends(cell: WeiNetCell) -> list[str]:
    return ["reference"] if cell.fused_unsupported_reason() else ["reference", "fused"]


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def written_out(
    cell: WeiNetCell, inputs: Tensor, state: AssociativeState, mask: Tensor | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run the equations of the class row by row → outputs, last hidden vector and last memory of each row."""
    kernels = np.split(cell.weight_ih.detach().numpy(), 7)
    biases = np.split(cell.bias.detach().numpy(), 7)
    recurrent = np.split(cell.weight_hh.detach().numpy(), 4)
    outputs = np.zeros((*inputs.shape[:2], cell.hidden_size))
    hiddens, memories = [], []
    for row in range(inputs.shape[1]):
        h, memory = state.hidden[row].numpy(), state.memory[row].numpy()
        for time in range(len(inputs)):
            x = inputs[time, row].numpy()
            entering = h if mask is None else mask[row].numpy() * h
            from_x = [kernel @ x + bias for kernel, bias in zip(kernels, biases, strict=True)]
            forget_row, forget_column, write_row, write_column = (
                sigmoid(drive + weight @ entering) for drive, weight in zip(from_x[:4], recurrent, strict=True)
            )
            value, key, candidate = from_x[4:]
            new_memory = np.zeros_like(memory)
            for i in range(cell.hidden_size):
                for j in range(cell.hidden_size):
                    new_memory[i, j] = forget_row[i] * forget_column[j] * memory[i, j]
                    new_memory[i, j] += write_row[i] * value[i] * write_column[j] * key[j]
            memory = new_memory
            new = memory @ h + candidate
            if isinstance(cell.norm, nn.LayerNorm):
                gain, shift = cell.norm.weight.detach().numpy(), cell.norm.bias.detach().numpy()
                new = (new - new.mean()) / np.sqrt(new.var() + 1e-5) * gain + shift
            h = cell.zoneout * h + (1 - cell.zoneout) * np.tanh(new)
            outputs[time, row] = h
        hiddens.append(h)
        memories.append(memory)
    return outputs, np.stack(hiddens), np.stack(memories)


@for_each("zoneout", [0.0, 0.3])
@with_and_without_norm
def test_equals_the_equations(layer_norm: bool, zoneout: float) -> None:
    cell = randomized(layer_norm=layer_norm, zoneout=zoneout).eval()
    inputs, state = random_run()
    for given in (cell.init_state(BATCH), state):
        expected = written_out(cell, inputs, given)
        for backend in backends(cell):
            with torch.no_grad():
                outputs, final = run(cell, inputs, given, backend)
            for actual, wanted in zip((outputs, *final), expected, strict=True):
                np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-11)


def test_recurrent_dropout_is_of_the_gates_and_the_same_at_all_steps() -> None:
    probability = 0.4
    cell = randomized(recurrent_dropout=probability).train()
    inputs, state = random_run()
    torch.manual_seed(3)
    mask = cell.sequence_constants(STEPS, BATCH).recurrent_dropout.value
    assert sorted(mask.unique().tolist()) == [0.0, pytest.approx(1 / (1 - probability))]
    torch.manual_seed(3)
    with torch.no_grad():
        outputs, _ = run(cell, inputs, state)
    np.testing.assert_allclose(outputs, written_out(cell, inputs, state, mask)[0], rtol=0, atol=1e-11)


@with_and_without_norm
def test_zoneout_of_the_fused_path_is_the_references(layer_norm: bool) -> None:
    cell = randomized(layer_norm=layer_norm, zoneout=0.4).train()
    if cell.fused_unsupported_reason():
        pytest.skip(cell.fused_unsupported_reason())
    inputs, state = random_run()
    leaves = [leaf.requires_grad_() for leaf in (inputs, *state)]
    results = []
    for backend in ("reference", "fused"):
        torch.manual_seed(5)
        outputs, final = run(cell, inputs, state, backend)
        generator = torch.Generator().manual_seed(7)
        values = [outputs, *final]
        cotangents = [torch.randn(value.shape, generator=generator, dtype=torch.float64) for value in values]
        results.append([*values, *torch.autograd.grad(values, [*leaves, *cell.parameters()], cotangents)])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


@for_each("given", [(26, 20_060), (36, 23_560)])
def test_parameters_of_the_recall_table(given: tuple[int, int]) -> None:
    inputs, total = given
    modules = WeiNetCell(inputs, 50), nn.Linear(50, 10)
    assert sum(parameter.numel() for module in modules for parameter in module.parameters()) == total


@with_and_without_norm
def test_parameter_shapes(layer_norm: bool) -> None:
    norm = {"norm.weight": (N,), "norm.bias": (N,)} if layer_norm else {}
    expected = {"weight_ih": (7 * N, X), "weight_hh": (4 * N, N), "bias": (7 * N,)} | norm
    cell = WeiNetCell(X, N, layer_norm=layer_norm)
    assert {name: tuple(parameter.shape) for name, parameter in cell.named_parameters()} == expected


def test_initialization() -> None:
    x, n = 30, 50
    cell = WeiNetCell(x, n)
    assert cell.bias.tolist() == [1.0] * (2 * n) + [0.0] * (5 * n)
    # each kernel for itself: not as one matrix with seven, or four, times as many outputs
    for kernel in cell.weight_ih.split(n):
        bound = math.sqrt(6 / (x + n))
        assert 0.98 * bound < kernel.abs().max() <= bound
    for kernel in cell.weight_hh.split(n):
        bound = math.sqrt(6 / (n + n))
        assert 0.98 * bound < kernel.abs().max() <= bound
    state = cell.init_state(BATCH)
    assert not any(leaf.any() for leaf in state)


BAD_OPTIONS: list[tuple[str, Any]] = [
    ("input_size", 0),
    ("hidden_size", 0),
    ("hidden_size", 5.0),
    ("layer_norm", "yes"),
    ("layer_norm", 1),
    ("zoneout", 1.0),
    ("recurrent_dropout", -0.1),
]


@for_each("given", BAD_OPTIONS)
def test_bad_options_are_refused_in_one_line(given: tuple[str, Any]) -> None:
    name, value = given
    arguments = {"input_size": X, "hidden_size": N, name: value}
    with pytest.raises(OptionError) as caught:
        WeiNetCell(**arguments)
    message = str(caught.value)
    assert message.startswith(f"{name}={value}: ")
    assert "\n" not in message
