"""FW-LN against its equations, and a fused path that builds no matrix within the sequence."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.cells.base import AssociativeState
from gyral.cells.fast_weights import FastWeightsCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

X, N, BATCH, STEPS = 4, 6, 3, 9  # longer than N
BACKENDS = ("reference", "fused")
every_backend = for_each("backend", BACKENDS)


def randomized(**options: Any) -> FastWeightsCell:
    """Return a cell in float64 with every parameter moved, that none is zero or one."""
    cell = FastWeightsCell(X, N, **options).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return cell


def random_run() -> tuple[Tensor, AssociativeState]:
    """Return inputs (T, B, X) and a state, whose matrix need not be symmetric."""
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    hidden, memory = torch.randn(BATCH, N), 0.5 * torch.randn(BATCH, N, N)
    return inputs, AssociativeState(hidden.double(), memory.double())


def run(cell: FastWeightsCell, backend: str, *arguments: Any) -> tuple[Tensor, AssociativeState]:
    model = Recurrent(lambda _: cell, cell.input_size, backend=backend).train(cell.training)
    inputs, state, lengths, starts = (*arguments, None, None, None)[:4]
    outputs, (final,) = model(inputs, None if state is None else (state,), lengths, starts)
    return outputs, final


def differentiate(
    cell: FastWeightsCell, backend: str, inputs: Tensor, state: AssociativeState, *others: Tensor | None
) -> list[Tensor]:
    """Return outputs, final state and the gradients of inputs, state and parameters under fixed cotangents."""
    leaves = [tensor.clone().requires_grad_() for tensor in (inputs, *state)]
    outputs, final = run(cell, backend, leaves[0], AssociativeState(*leaves[1:]), *others)
    values = [outputs, *final]
    generator = torch.Generator().manual_seed(7)
    cotangents = [torch.randn(value.shape, generator=generator, dtype=torch.float64) for value in values]
    return [*values, *torch.autograd.grad(values, [*leaves, *cell.parameters()], cotangents)]


# ---------------------------------------------------------------- equations


def written_out(
    cell: FastWeightsCell, inputs: Tensor, state: AssociativeState, mask: Tensor | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run the equations row by row → outputs, last hidden vector and last matrix of each row."""
    kernel, recurrent, bias, gain, shift = (
        p.detach().numpy() for p in (cell.weight_ih, cell.weight_hh, cell.bias, cell.norm.weight, cell.norm.bias)
    )
    activation = {"relu": lambda z: np.maximum(z, 0), "tanh": np.tanh}[cell.activation]
    outputs = np.zeros((*inputs.shape[:2], cell.hidden_size))
    hiddens, memories = [], []
    for row in range(inputs.shape[1]):
        h, memory = state.hidden[row].numpy(), state.memory[row].numpy()
        for time in range(len(inputs)):
            memory = cell.decay * memory + cell.rate * np.outer(h, h)
            entering = h if mask is None else mask[row].numpy() * h
            drive = recurrent @ entering + kernel @ inputs[time, row].numpy() + bias
            new = activation(drive)
            for _ in range(cell.inner_steps):
                settled = drive + memory @ new
                new = activation((settled - settled.mean()) / np.sqrt(settled.var() + 1e-5) * gain + shift)
            h = cell.zoneout * h + (1 - cell.zoneout) * new
            outputs[time, row] = h
        hiddens.append(h)
        memories.append(memory)
    return outputs, np.stack(hiddens), np.stack(memories)


@every_backend
@for_each("activation", ["relu", "tanh"])
@for_each("inner_steps", [1, 3])
@for_each("options", [{}, {"decay": 0.4, "rate": 1.5}, {"decay": 0.0}, {"decay": 1, "rate": 0.2, "zoneout": 0.3}])
def test_equals_the_equations(options: dict[str, Any], inner_steps: int, activation: str, backend: str) -> None:
    cell = randomized(inner_steps=inner_steps, activation=activation, **options).eval()
    inputs, state = random_run()
    for given in (cell.init_state(BATCH), state):
        with torch.no_grad():
            outputs, final = run(cell, backend, inputs, given)
        for actual, expected in zip((outputs, *final), written_out(cell, inputs, given), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-11)


def test_defaults_are_the_papers() -> None:
    cell = FastWeightsCell(X, N)
    assert (cell.decay, cell.rate, cell.inner_steps, cell.activation) == (0.95, 0.5, 1, "relu")
    state = cell.init_state(BATCH)
    assert state.hidden.shape == (BATCH, N)
    assert state.memory.shape == (BATCH, N, N)
    assert not any(leaf.any() for leaf in state)


def test_initialization_and_parameter_count() -> None:
    x, n = 30, 40
    cell = FastWeightsCell(x, n)
    assert torch.equal(cell.weight_hh, 0.05 * torch.eye(n))
    assert torch.equal(FastWeightsCell(x, n, recurrent_scale=0.7).weight_hh, 0.7 * torch.eye(n))
    bound = math.sqrt(6 / (x + n))
    assert 0.98 * bound < cell.weight_ih.abs().max() <= bound
    assert cell.bias.count_nonzero() == 0
    assert cell.norm.weight.eq(1).all()
    assert cell.norm.bias.eq(0).all()
    assert sum(parameter.numel() for parameter in cell.parameters()) == n * x + n * n + 3 * n


@every_backend
def test_recurrent_dropout_has_one_mask_for_all_steps(backend: str) -> None:
    probability = 0.4
    cell = randomized(recurrent_dropout=probability).train()
    inputs, state = random_run()
    torch.manual_seed(3)
    mask = cell.sequence_constants(STEPS, BATCH).recurrent_dropout.value
    assert sorted(mask.unique().tolist()) == [0.0, pytest.approx(1 / (1 - probability))]
    torch.manual_seed(3)
    with torch.no_grad():
        outputs, _ = run(cell, backend, inputs, state)
    np.testing.assert_allclose(outputs, written_out(cell, inputs, state, mask)[0], rtol=0, atol=1e-11)


# ---------------------------------------------------------------- the fused path


@for_each("inner_steps", [1, 3])
@for_each("steps", [1, N - 1, N, 4 * N])
def test_fused_equals_reference_on_short_and_long_sequences(steps: int, inner_steps: int) -> None:
    cell = randomized(inner_steps=inner_steps, activation="tanh")
    _, state = random_run()
    inputs = torch.randn(steps, BATCH, X, dtype=torch.float64)
    for lengths in (None, torch.tensor([1, steps, (steps + 1) // 2])):
        reference, fused = (differentiate(cell, backend, inputs, state, lengths) for backend in BACKENDS)
        for one, other in zip(fused, reference, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_masks_of_the_fused_path_are_the_references() -> None:
    cell = randomized(zoneout=0.3, recurrent_dropout=0.2).train()
    inputs, state = random_run()
    results = []
    for backend in BACKENDS:
        torch.manual_seed(5)
        results.append(differentiate(cell, backend, inputs, state))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_some_gradients_of_the_fused_path_and_then_all() -> None:
    cell = randomized()
    inputs, state = random_run()
    truth = differentiate(cell, "reference", inputs, state)[3:]
    leaves = [tensor.clone().requires_grad_() for tensor in (inputs, *state)]
    outputs, final = run(cell, "fused", leaves[0], AssociativeState(*leaves[1:]))
    values, wanted = [outputs, *final], [*leaves, *cell.parameters()]
    generator = torch.Generator().manual_seed(7)
    cotangents = [torch.randn(value.shape, generator=generator, dtype=torch.float64) for value in values]
    everything = range(len(wanted))
    for picked in (*((index,) for index in everything), everything, (0, 3), everything):
        asked = [wanted[index] for index in picked]
        gradients = torch.autograd.grad(values, asked, cotangents, retain_graph=True)
        for index, gradient in zip(picked, gradients, strict=True):
            torch.testing.assert_close(gradient, truth[index], rtol=1e-10, atol=1e-10)


@for_each("trainable", ["weight_ih", "bias", "weight_hh", "norm.weight", "norm.bias"])
def test_a_single_trainable_parameter_has_its_gradient(trainable: str) -> None:
    cell = randomized()
    inputs, state = random_run()
    for name, parameter in cell.named_parameters():
        parameter.requires_grad_(name == trainable)
    wanted = cell.get_parameter(trainable)
    gradients = [torch.autograd.grad(run(cell, backend, inputs, state)[0].sum(), wanted) for backend in BACKENDS]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


def test_second_derivatives_are_the_references() -> None:
    cell = randomized(activation="tanh", inner_steps=2)
    inputs, state = random_run()
    leaves = [inputs.requires_grad_(), *cell.parameters()]
    found = []
    for backend in BACKENDS:
        first = torch.autograd.grad(run(cell, backend, inputs, state)[0].square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(gradient.square().sum() for gradient in first), leaves))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@for_each("often", [0.2, 0.6])
@for_each("ragged", [False, True])
def test_rows_are_reset(ragged: bool, often: float) -> None:
    cell = randomized(activation="tanh", inner_steps=2, zoneout=0.2, layer_norm_eps=0.1).eval()
    inputs, state = random_run()
    starts = torch.rand(STEPS, BATCH) < often
    starts[0] = torch.tensor([True, False, False])
    starts[:, 2] = False
    lengths = torch.tensor([5, STEPS, 3]) if ragged else None
    reference, fused = (differentiate(cell, backend, inputs, state, lengths, starts) for backend in BACKENDS)
    for one, other in zip(fused, reference, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    # nothing reaches the state passed in from a row that begins anew at once
    assert not fused[4][0].any()
    assert not fused[5][0].any()
    assert fused[5][1:].any()


@pytest.mark.slow
def test_compiled_and_exported_models_run_the_reference() -> None:
    model = Recurrent(lambda _: randomized(), X)
    inputs, _ = random_run()
    expected, _ = model(inputs)
    assert model.backend == "fused"
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(inputs)[0], expected)
    torch.testing.assert_close(torch.export.export(model, (inputs,)).module()(inputs)[0], expected)


def test_an_empty_batch() -> None:
    cell = randomized()
    inputs = torch.randn(STEPS, 0, X, dtype=torch.float64, requires_grad=True)
    for backend in BACKENDS:
        outputs, final = run(cell, backend, inputs, None, None, torch.zeros(STEPS, 0, dtype=torch.bool))
        assert outputs.shape == (STEPS, 0, N)
        assert final.memory.shape == (0, N, N)
        assert not any(gradient.any() for gradient in torch.autograd.grad(outputs.sum(), list(cell.parameters())))


@for_each("inside", [False, True])
@every_backend
def test_trains_under_autocast(backend: str, inside: bool) -> None:
    cell = FastWeightsCell(X, N)
    inputs = torch.randn(STEPS, BATCH, X)
    gradients = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            outputs, _ = run(cell, backend, inputs)
        loss = outputs.float().square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled and inside):
            gradients.append(torch.autograd.grad(loss, list(cell.parameters())))
    exact, rounded = (torch.cat([gradient.flatten() for gradient in all_of]) for all_of in gradients)
    assert rounded.isfinite().all()
    assert torch.nn.functional.cosine_similarity(exact, rounded, dim=0) > 0.98


# ---------------------------------------------------------------- refusals

BAD_OPTIONS: list[tuple[str, Any]] = [
    ("input_size", 0),
    ("hidden_size", 0),
    ("hidden_size", 5.0),
    ("decay", -0.1),
    ("decay", 1.1),
    ("decay", math.nan),
    ("decay", None),
    ("rate", -1),
    ("rate", math.inf),
    ("rate", "0.5"),
    ("inner_steps", 0),
    ("inner_steps", 1.0),
    ("activation", "sigmoid"),
    ("recurrent_scale", math.nan),
    ("recurrent_scale", "big"),
    ("zoneout", 1.0),
    ("recurrent_dropout", 1.0),
]


@for_each("given", BAD_OPTIONS)
def test_bad_options_are_refused_in_one_line(given: tuple[str, Any]) -> None:
    name, value = given
    arguments = {"input_size": X, "hidden_size": N, name: value}
    with pytest.raises(OptionError) as caught:
        FastWeightsCell(**arguments)
    message = str(caught.value)
    assert message.startswith(f"{name}={value}: ")
    assert "\n" not in message
