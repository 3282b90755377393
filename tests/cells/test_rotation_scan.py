"""The rotation scan beside RUM, at the angles where rotations are special, and over many steps."""

import pytest
import torch
from torch import Tensor

from gyral.cells.rotation_scan import RotationScanCell
from gyral.cells.rum import RUMCell
from gyral.nn.recurrent import Recurrent
from gyral.ops import rotation
from gyral.ops.rotation_scan import naive, rotation_scan
from tests.helpers.kernels import skip_unless_ready
from tests.helpers.loops import for_each

FORMS = ("chunks", "kernel")


def turned(cell: RotationScanCell, embedded: Tensor, target: Tensor) -> Tensor:
    """Return R (B, H, d, d) after one step from the identity with these vectors (B, N)."""
    state = cell.init_state(len(embedded))
    ones = torch.ones_like(embedded)
    return cell.step(cell.Projected(target, ones, ones, embedded), state, None)[1].memory


def run(form: str, parts: Tensor, memory: Tensor, h0: Tensor, double_angle: bool) -> tuple[Tensor, ...]:
    if form == "kernel":
        skip_unless_ready(rotation_scan)
        return rotation_scan(parts, memory, h0, double_angle=double_angle)
    return naive.rotation_scan(parts, memory, h0, None, None, double_angle, "relu")


def test_a_step_with_the_single_angle_is_the_rotation_of_rum() -> None:
    cell = RotationScanCell(3, 6, heads=2, angle="single").double()
    embedded, target = torch.randn(2, 5, 6, dtype=torch.float64)
    heads = [rotation.matrix(e, t) for e, t in zip(embedded.split(3, 1), target.split(3, 1), strict=True)]
    torch.testing.assert_close(turned(cell, embedded, target), torch.stack(heads, 1), rtol=0, atol=1e-14)


def test_the_memory_equals_that_of_rum_whose_target_depends_on_the_input_alone() -> None:
    cell, rum = RotationScanCell(3, 5, heads=1, angle="single").double(), RUMCell(3, 5, lambd=1.0).double()
    with torch.no_grad():
        rum.weight_hh[:5] = 0
        rum.weight_ih.copy_(torch.cat((cell.weight_ih[:10], cell.weight_ih[15:])))
        rum.bias.copy_(torch.cat((cell.bias[:10], cell.bias[15:])))
    inputs = torch.randn(9, 4, 3, dtype=torch.float64)
    _, (state,) = Recurrent(lambda _: cell, 3).double()(inputs)
    _, (expected,) = Recurrent(lambda _: rum, 3).double()(inputs)
    torch.testing.assert_close(state.memory.squeeze(1), expected.memory, rtol=0, atol=1e-13)


def test_the_double_angle_is_the_square_of_the_single_one() -> None:
    single, double = (RotationScanCell(3, 4, heads=1, angle=angle).double() for angle in ("single", "double"))
    embedded, target = torch.randn(2, 5, 4, dtype=torch.float64)
    half = turned(single, embedded, target)
    torch.testing.assert_close(turned(double, embedded, target), half @ half, rtol=0, atol=1e-14)


def test_the_double_angle_reaches_half_turns_with_finite_gradients() -> None:
    cell = RotationScanCell(2, 3, heads=1).double()
    embedded = torch.tensor([[2.0, 0, 0]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[0, 3.0, 0]], dtype=torch.float64, requires_grad=True)
    memory = turned(cell, embedded, target)
    torch.testing.assert_close(memory[0, 0], torch.diag(torch.tensor([-1.0, -1, 1], dtype=torch.float64)))
    gradients = torch.autograd.grad(memory.square().sum() + memory.sum(), (embedded, target))
    assert all(gradient.abs().max() < 10 for gradient in gradients)


@for_each("form", FORMS)
@for_each("angle", ["single", "double"])
def test_zero_and_opposite_vectors(angle: str, form: str) -> None:
    cell = RotationScanCell(3, 3, heads=1, angle=angle).double()
    vector = torch.tensor([1.0, -2, 0.5], dtype=torch.float64)
    pairs = [(vector, 0 * vector), (0 * vector, vector), (0 * vector, 0 * vector), (vector, -3 * vector)]
    embedded, target = (torch.stack(side) for side in zip(*pairs, strict=True))
    memory = turned(cell, embedded, target)
    opposite = rotation.matrix(vector, -vector) if angle == "single" else torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(memory[:3, 0], torch.eye(3, dtype=torch.float64).expand(3, 3, 3), rtol=0, atol=0)
    torch.testing.assert_close(memory[3, 0], opposite, rtol=0, atol=1e-14)

    parts = torch.cat((target, embedded, embedded, embedded), dim=1).unsqueeze(0).requires_grad_()
    state = cell.init_state(4)
    outputs, found, _ = run(form, parts, state.memory, state.hidden, angle == "double")
    torch.testing.assert_close(found, memory, rtol=0, atol=1e-14)
    (gradient,) = torch.autograd.grad(outputs.sum() + found.sum(), parts)
    assert gradient.isfinite().all()
    assert not gradient[0, :3, :3].any(), "a zero vector has no gradient through the rotation"


def test_without_query_weights_the_outputs_read_the_group_element() -> None:
    # quarter-turns about two axes, whose order matters
    cell = RotationScanCell(2, 3, heads=1, activation="tanh").double()
    with torch.no_grad():
        cell.bias.zero_()
        cell.weight_ih.zero_()
        cell.weight_ih[:3] = torch.tensor([[1.0, 1], [1, 0], [0, 1]])  # τ: at 45 degrees to ε
        cell.bias[9] = 1e-12  # ε: the x axis, and small beside R q
        cell.bias[3:6], cell.bias[6:9] = -1e3, torch.tensor([0.3, 0.2, 0.1])  # open gate, constant query
    words = torch.eye(2, dtype=torch.float64)[torch.tensor([[0, 1, 0, 1], [0, 1, 1, 0]])].transpose(0, 1)
    outputs, (state,) = Recurrent(lambda _: cell, 2).double()(words)
    memory, query = state.memory[:, 0], cell.bias[6:9]
    torch.testing.assert_close(outputs[-1], torch.tanh(memory @ query), rtol=0, atol=1e-10)
    torch.testing.assert_close(memory, memory.round(), rtol=0, atol=1e-10)  # a symmetry of the cube
    assert (memory[0] - memory[1]).abs().max() > 0.5


@pytest.mark.parametrize(
    ("form", "steps"),
    [*((form, 10_000) for form in FORMS), ("steps", 1000), pytest.param("steps", 10_000, marks=pytest.mark.slow)],
)
def test_the_memory_stays_a_rotation_over_thousands_of_steps(form: str, steps: int) -> None:
    # float32; in ten thousand steps, unit vectors that are too long by 7e-8 would move it by 1e-3
    torch.manual_seed(0)
    size = 16
    memory, hidden = torch.eye(size).repeat(1, 1, 1, 1), torch.zeros(1, size)
    parts = torch.randn(steps, 1, 4 * size)
    if form == "steps":
        cell = RotationScanCell(2, size, heads=1)
        state = cell.init_state(1)
        with torch.no_grad():
            for step in parts.unbind(0):
                _, state = cell.step(cell.Projected(*step.split(size, dim=1)), state, None)
        found, bound = state.memory, 2e-8 * steps
    else:
        found, bound = run(form, parts, memory, hidden, True)[1], 1e-5
    assert (found.mT @ found - torch.eye(size)).norm() < bound


def test_bfloat16_autocast_leaves_the_memory_in_float32() -> None:
    # in bfloat16, the memory would move by 0.03 in 300 steps
    torch.manual_seed(0)
    for backend in ("fused", "reference"):
        model = Recurrent(lambda size: RotationScanCell(size, 16, heads=1), 4, backend=backend)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            _, (state,) = model(torch.randn(300, 1, 4))
        assert state.memory.dtype == torch.float32
        assert (state.memory.mT @ state.memory - torch.eye(16)).norm() < 1e-4
