"""LANTM against a transcription of its equations in numpy, its groups, and its memory."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from gyral.cells.inputs import MaskedInputs
from gyral.cells.lantm import LANTMCell
from gyral.cells.rum import RUMCell
from gyral.core.errors import OptionError
from gyral.nn.layers import LANTM
from gyral.nn.recurrent import Recurrent
from gyral.ops.lie_access.groups import GROUPS, Hyperbolic
from tests.helpers.loops import for_each

B, T, X, N, W = 2, 7, 3, 5, 4


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def transcribe(cell: LANTMCell, inputs: np.ndarray, write: np.ndarray) -> np.ndarray:
    """Return the outputs (T, N) for one sequence (T, X); steps are complex numbers, the memory is a list."""
    layer = {name: value.detach().numpy() for name, value in cell.controller.named_parameters()}
    kernel = np.concatenate([layer["layer.weight_ih_l0"], layer["layer.weight_hh_l0"]], axis=1)
    bias = layer["layer.bias_ih_l0"] + layer["layer.bias_hh_l0"]
    heads, head_bias = cell.head_weight.detach().numpy(), cell.head_bias.detach().numpy()
    plane = [complex(*row) for row in np.concatenate([cell.initial_keys.detach(), cell.initial_steps.detach()])]
    rotates = cell.group == "rotation"

    def unit(z: complex) -> complex:
        return z / abs(z)

    (write_key, read_key), steps = plane[:2], plane[2:]
    write_step, read_step = map(unit, steps) if rotates else steps
    h, c = (vector.detach().numpy() for vector in cell.initial_vectors)
    read_vector, memory, outputs = np.zeros(W), [], []

    def move(z: np.ndarray, key: complex, step: complex) -> tuple[complex, complex]:
        raw = complex(z[3], z[4])
        candidate = unit(raw) if rotates or cell.lie_group.normalizes else raw
        gamma, g = sigmoid(z[5]) if cell.interpolate_steps else 1.0, sigmoid(z[2])
        step = (1 - gamma) * step + gamma * candidate
        step = unit(step) if rotates else step
        mixed = g * complex(z[0], z[1]) + (1 - g) * key
        return (step + mixed if cell.group == "translation" else step * mixed), step

    for x, may_write in zip(inputs, write, strict=True):
        i, f, g, o = np.split(kernel @ np.concatenate([x, read_vector, h]) + bias, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        z = heads @ h + head_bias
        if not cell.interpolate_steps:  # it has no such gates
            z = np.insert(z, [5, 11 + W], 0.0)
        known = [*memory]
        if may_write:
            write_key, write_step = move(z[:6], write_key, write_step)
            if len(memory) == cell.capacity:
                del memory[: cell.forget]
                known = [*memory]
            memory.append((write_key, sigmoid(z[6]), np.tanh(z[7 : 7 + W])))
        read_key, read_step = move(z[7 + W : 13 + W], read_key, read_step)
        known = known if cell.read_first else memory
        distances = [abs(read_key - key) ** 2 for key, _, _ in known]
        if cell.weighting == "softmax":
            temperature = np.log1p(np.exp(z[13 + W])) + 1e-4
            weights = [s * np.exp(-d / temperature) for d, (_, s, _) in zip(distances, known, strict=True)]
        else:
            weights = [s / (d + 1e-9) for d, (_, s, _) in zip(distances, known, strict=True)]
        read_vector = np.zeros(W)
        for weight, (_, _, vector) in zip(weights, known, strict=True):
            read_vector = read_vector + weight * vector / sum(weights)
        outputs.append(h)
    return np.stack(outputs)


@for_each("group", ["translation", "rotation", "scaling_rotation"])
@for_each(
    "options",
    [
        {},
        {"weighting": "softmax"},
        {"capacity": 3, "forget": 2, "normalize_steps": False},
        {"read_first": True, "interpolate_steps": False},
        {"read_first": True, "capacity": 3, "forget": 2},
    ],
)
@for_each("backend", ["reference", "auto"])
def test_the_cell_follows_the_equations(group: str, options: dict[str, Any], backend: str) -> None:
    factory = partial(LANTMCell, hidden_size=N, width=W, group=group, write_gate_bias=-1.0, **options)
    model = Recurrent(factory, X, backend=backend).double()
    inputs = torch.randn(T, B, X, dtype=torch.float64)
    write = torch.rand(T, B) < 0.7
    outputs, _ = model(MaskedInputs(inputs, write))
    for row in range(B):
        expected = transcribe(model.cells[0], inputs[:, row].numpy(), write[:, row].numpy())
        np.testing.assert_allclose(outputs[:, row].detach().numpy(), expected, rtol=1e-9, atol=1e-11)


@for_each("name", GROUPS)
def test_a_group_has_an_identity_and_inverses_and_keeps_its_elements(name: str) -> None:
    group = GROUPS[name]()
    points, raw = group.point(torch.randn(9, 2, dtype=torch.float64)), torch.randn(9, 2, dtype=torch.float64)
    elements, identity = group.element(raw), group.identity(points)
    torch.testing.assert_close(group.act(identity.expand(9, 2), points), points)
    torch.testing.assert_close(group.interpolate(elements, identity.expand(9, 2), torch.zeros(9, 1)), elements)
    # the action is injective: moved points have other distances only where the group scales
    moved = group.act(elements, points)
    assert moved.isfinite().all()
    if name != "scaling_rotation":
        before = group.squared_distance(points[:-1], points[1:])
        together = group.act(elements[:1].expand(9, 2), points)
        torch.testing.assert_close(group.squared_distance(together[:-1], together[1:]), before, rtol=1e-5, atol=1e-6)


def test_the_hyperbolic_plane_has_its_metric() -> None:
    # from the origin to r the distance is 2 artanh(r)
    group, radius = Hyperbolic(), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    points = torch.stack([radius, torch.zeros(3, dtype=torch.float64)], dim=-1)
    found = group.squared_distance(torch.zeros_like(points), points).sqrt()
    torch.testing.assert_close(found, 2 * radius.atanh(), rtol=1e-5, atol=1e-5)


def test_a_full_memory_is_an_error_only_if_it_forgets_nothing() -> None:
    layer = LANTM(X, N, capacity=4, forget=0)
    inputs = torch.randn(5, B, X)
    mask = torch.ones(5, B, dtype=torch.bool)
    mask[1] = False
    assert layer(MaskedInputs(inputs, mask))[1].count.tolist() == [[4, 4]]
    for backend in ("auto", "reference"):
        with pytest.raises(OptionError, match=r"^capacity=4: "):
            LANTM(X, N, capacity=4, forget=0, backend=backend)(inputs)
    _, state = LANTM(X, N, capacity=4, forget=3)(inputs)
    assert state.count.tolist() == [[2, 2]]
    assert not state.strengths[..., 2:].any()


def test_a_task_determines_the_capacity() -> None:
    cell = LANTMCell(X, N)
    assert (cell.capacity, cell.forget) == (100, 60)
    cell.reserve(130)
    assert (cell.init_state(1).keys.shape[1], cell.forget) == (130, 0)
    with pytest.raises(OptionError, match=r"^capacity=20: must be at least 130"):
        LANTMCell(X, N, capacity=20).reserve(130)
    LANTMCell(X, N, capacity=20, forget=10).reserve(130)


def test_steps_without_writing_leave_the_memory_and_the_write_head() -> None:
    layer = LANTM(X, N, width=W)
    inputs = torch.randn(6, B, X)
    mask = torch.zeros(6, B, dtype=torch.bool)
    mask[:3] = True
    _, middle = layer(inputs[:3])
    _, final = layer(MaskedInputs(inputs, mask))
    for name in ("keys", "vectors", "strengths", "count", "write_key", "write_step"):
        torch.testing.assert_close(getattr(final, name), getattr(middle, name))
    assert not torch.equal(final.read_key, middle.read_key)


def test_the_write_head_starts_on_a_straight_line() -> None:
    _, state = LANTM(X, N)(torch.randn(8, 1, X))
    steps = state.keys[0, 0, :8].diff(dim=0)
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=0.02, atol=0.02)


def test_any_cell_may_be_the_controller() -> None:
    layer = LANTM(X, N, controller=partial(RUMCell, lambd=1.0))
    outputs, _ = layer(torch.randn(T, B, X))
    outputs.sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    assert layer.backend == "reference"
    with pytest.raises(OptionError, match=r"^controller\.hidden_size=7"):
        LANTM(X, N, controller=partial(RUMCell, hidden_size=7))


def test_both_directions_and_packed_rows_take_the_mask() -> None:
    inputs, mask = torch.randn(T, B, X), torch.rand(T, B) < 0.5
    layer = LANTM(X, N, bidirectional=True, capacity=T)
    outputs, _ = layer(MaskedInputs(inputs, mask))
    alone = LANTM(X, N, capacity=T)
    alone.cells[0].load_state_dict(layer.cells[1].state_dict())
    backward, _ = alone(MaskedInputs(inputs.flip(0), mask.flip(0)))
    torch.testing.assert_close(outputs[..., N:], backward.flip(0))
    lengths = torch.tensor([4, 7])
    packed = torch.nn.utils.rnn.pack_padded_sequence(inputs, lengths, enforce_sorted=False)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(layer(MaskedInputs(packed, mask))[0])
    torch.testing.assert_close(padded, layer(MaskedInputs(inputs, mask), lengths=lengths)[0])


@for_each("given", [("group", "SO(3)"), ("weighting", "cosine"), ("forget", 200)])
def test_wrong_options(given: tuple[str, Any]) -> None:
    option, value = given
    with pytest.raises(OptionError, match=f"^{option}="):
        LANTMCell(X, N, **{option: value})


def test_traces() -> None:
    layer = LANTM(X, N, width=W)
    with layer.cells[0].record_steps() as steps:
        outputs, _ = layer(torch.randn(T, B, X))
    gates = layer.cells[0].gates(outputs)
    assert all(value.shape == (T, B) for value in gates.values())
    assert all((value >= 0).all() and (value <= 1).all() for value in gates.values())
    places = layer.cells[0].locations(steps[-1].state)
    assert places.count.tolist() == [T, T]
    torch.testing.assert_close(places.strength, gates["strength"][-1])
    read = layer.cells[0].weightings(outputs[-1], steps[-1].state)["read"]
    torch.testing.assert_close(read.sum(-1), torch.ones(B))


@for_each("weighting", ["inv_norm", "softmax"])
@for_each("read_first", [False, True])
def test_weightings_are_the_weights_of_the_vectors_in_what_a_step_read(weighting: str, read_first: bool) -> None:
    options: dict[str, Any] = {"weighting": weighting, "read_first": read_first, "capacity": 4, "forget": 1}
    cell = LANTM(X, N, width=W, **options).double().cells[0]
    state, write = cell.init_state(B), torch.rand(3 * T, B) < 0.6
    for mask in write:
        output, state = cell(MaskedInputs(torch.randn(B, X).double(), mask), state)
        weights = cell.weightings(output, state, mask)["read"]
        read = torch.bmm(weights.unsqueeze(1), state.vectors).squeeze(1)
        torch.testing.assert_close(read, state.read_vector)


@for_each("weighting", ["inv_norm", "softmax"])
@for_each("read_first", [False, True])
def test_slots_beyond_the_count_have_no_gradient_on_any_backend(weighting: str, read_first: bool) -> None:
    options: dict[str, Any] = {"weighting": weighting, "read_first": read_first, "capacity": 6}
    layers = [LANTM(X, N, width=W, backend=backend, **options).double() for backend in ("reference", "fused")]
    layers[1].load_state_dict(layers[0].state_dict())
    inputs = torch.randn(4, B, X, dtype=torch.float64)
    _, state = layers[0](inputs[:2])
    gradients = []
    for layer in layers:
        strengths = state.strengths.detach().requires_grad_()
        outputs, _ = layer(inputs[2:], state._replace(strengths=strengths))
        gradients.append(*torch.autograd.grad(outputs.square().sum(), strengths))
    torch.testing.assert_close(*gradients)
    assert not gradients[0][..., 2:].any()
    assert gradients[0][..., :2].all()
