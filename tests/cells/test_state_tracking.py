"""PD-SSM and SLiCE: automata, the straight-through gradient, and the first step of a segment."""

import torch

from gyral.cells.pd_ssm import PDSSMCell
from gyral.cells.slice import SLiCECell
from gyral.nn.recurrent import Recurrent
from gyral.ops.permutation_scan import permutation_scan


def test_pd_ssm_composes_functions_of_a_finite_set() -> None:
    # one number per state of an automaton; words are functions of it, and some of them merge states
    torch.manual_seed(0)
    steps, size = 50, 5
    functions = torch.randint(size, (steps, size))
    dictionary = torch.nn.functional.one_hot(functions, size).mT.double()  # one matrix for each step
    ones = torch.tensor([1.0, 0.0]).double().repeat_interleave(size).expand(steps, 1, -1)
    h0 = torch.zeros(1, 2 * size).double()
    h0[0, 3] = 1
    outputs, _ = permutation_scan(torch.eye(steps).double().unsqueeze(1), dictionary, ones, torch.zeros_like(ones), h0)
    state = 3
    for time in range(steps):
        state = int(functions[time, state])
        assert outputs[time, 0].argmax() == state
        assert outputs[time, 0].sum() == 1


def test_the_sign_of_a_number_of_pd_ssm_can_alternate() -> None:
    # parity: the magnitude of an eigenvalue can be close to 1, and its phase is half a turn in the middle of its range
    cell = PDSSMCell(1, 1, state_size=1).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.bias_magnitude.fill_(40.0)
        cell.C[0, 0, 0] = 1.0
    state = cell.init_state(1)._replace(hidden=torch.tensor([[1.0, 0.0]]).double())
    outputs, _ = Recurrent(lambda _: cell, 1).double()(torch.zeros(6, 1, 1).double(), (state,))
    torch.testing.assert_close(outputs.flatten(), torch.tensor([-1.0, 1, -1, 1, -1, 1]).double())


def test_the_first_step_of_every_segment_of_slice_is_the_initial_map() -> None:
    cell = SLiCECell(3, 6).double()
    inputs, starts = torch.randn(8, 2, 3).double(), torch.zeros(8, 2, dtype=torch.bool)
    starts[3, 0] = starts[5, 1] = True
    with torch.no_grad():
        cell.bias_initial.normal_()
        expected = inputs @ cell.weight_initial.T + cell.bias_initial
    for backend in ("reference", "fused"):
        model = Recurrent(lambda _: cell, 3, backend=backend).double()
        outputs, (state,) = model(inputs, starts=starts)
        for time, row in ((0, 0), (0, 1), (3, 0), (5, 1)):
            torch.testing.assert_close(outputs[time, row], expected[time, row])
        assert (outputs[1] - expected[1]).abs().max() > 0.1
        # the flag is down after a step: the next window goes on
        continued, _ = model(inputs, (state,))
        assert (continued[0] - expected[0]).abs().max() > 0.1


def test_blocks_of_slice_do_not_mix() -> None:
    cell = SLiCECell(2, 6, block_size=3).double()
    model = Recurrent(lambda _: cell, 2).double()
    inputs = torch.randn(5, 1, 2).double()
    state = cell.State(torch.randn(1, 6).double().requires_grad_(), torch.zeros(1, dtype=torch.int64))
    outputs, _ = model(inputs, (state,))
    (gradient,) = torch.autograd.grad(outputs[..., :3].sum(), state.hidden)
    assert gradient[0, :3].abs().min() > 0
    assert not gradient[0, 3:].any()


@torch.no_grad()
def test_the_norm_of_slice_stays_bounded_for_small_steps_in_time() -> None:
    """As its docstring says: with Δ = 10 / T, also with two layers, below three times the first norm."""
    for steps, size in ((200, 8), (1000, 64)):
        model = Recurrent(lambda width, dt=10 / steps, size=size: SLiCECell(width, size, dt=dt), size, num_layers=2)
        outputs, (*_, last) = model(torch.randn(steps, 4, size))
        assert outputs.isfinite().all()
        assert last.hidden.norm() <= 3 * outputs[0].norm()
