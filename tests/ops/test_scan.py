"""The time loop: what each step is given, what is handed on, and what lengths change."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from gyral.ops.scan import Shared, is_shared, scan

STEPS, BATCH = 5, 3


class Pair(NamedTuple):
    hidden: Tensor
    memory: Tensor


def add(inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Put out ten times the running sum."""
    state = state + inputs
    return 10 * state, state


def test_steps_run_in_order_and_pass_the_state() -> None:
    inputs, start = torch.randn(STEPS, BATCH, 2), torch.randn(BATCH, 2)
    outputs, final = scan(add, inputs, start)
    sums = start + inputs.cumsum(0)
    torch.testing.assert_close(outputs, 10 * sums)
    torch.testing.assert_close(final, sums[-1])


def test_a_step_gets_the_structure_of_the_sequence() -> None:
    class Projected(NamedTuple):
        gates: Tensor
        absent: None
        shared: Shared

    shared = {"matrix": torch.randn(2, 2), "name": "any object"}
    sequence = (Projected(torch.randn(STEPS, BATCH, 4), None, Shared(shared)), [torch.randn(STEPS, BATCH), None])
    seen: list[Any] = []

    def step(at_a_time: Any, state: Any) -> tuple[Tensor, Any]:
        seen.append(at_a_time)
        return torch.zeros(BATCH, 1), state

    scan(step, sequence, torch.zeros(BATCH, 1))
    assert len(seen) == STEPS
    for time, (projected, others) in enumerate(seen):
        assert type(projected) is Projected
        assert torch.equal(projected.gates, sequence[0].gates[time])
        assert projected.absent is None
        assert type(projected.shared) is Shared
        assert projected.shared.value is shared, "what is fixed is handed on as it is"
        assert isinstance(others, list)
        assert torch.equal(others[0], sequence[1][0][time])
        assert others[1] is None


def test_a_shared_tensor_is_not_split() -> None:
    """Not even one whose first dimension is another number than that of steps, or that stands first."""
    matrix = torch.randn(2, 2)
    inputs = torch.randn(STEPS, BATCH, 2)

    def step(at_a_time: Any, state: Tensor) -> tuple[Tensor, Tensor]:
        fixed, now = at_a_time
        assert fixed.value is matrix
        state = state @ fixed.value + now
        return state, state

    outputs, _ = scan(step, (Shared(matrix), inputs), torch.zeros(BATCH, 2))
    assert outputs.shape == (STEPS, BATCH, 2)
    assert is_shared(Shared(matrix))
    assert not is_shared((matrix,))


def test_a_shared_tensor_gets_the_gradient_of_all_steps() -> None:
    matrix = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    inputs = torch.randn(STEPS, BATCH, 2, dtype=torch.float64, requires_grad=True)

    def step(at_a_time: Any, state: Tensor) -> tuple[Tensor, Tensor]:
        now, fixed = at_a_time
        state = torch.tanh(state @ fixed.value + now)
        return state, state

    def run(matrix: Tensor, inputs: Tensor) -> Tensor:
        outputs, final = scan(step, (inputs, Shared(matrix)), torch.zeros(BATCH, 2, dtype=torch.float64))
        return outputs.sum() + final.sin().sum()

    assert torch.autograd.gradcheck(run, (matrix, inputs))


def lengths_step(now: Tensor, state: Pair) -> tuple[Tensor, Pair]:
    hidden = state.hidden + now
    return hidden + 1, Pair(hidden, state.memory + hidden.unsqueeze(-1) * hidden.unsqueeze(-2))


@pytest.mark.parametrize("lengths", [[1, 5, 3], [5, 5, 5], [1, 1, 1], [2, 4, 4]], ids=str)
def test_a_row_stops_at_its_length(lengths: list[int]) -> None:
    inputs = torch.randn(STEPS, BATCH, 2)
    start = Pair(torch.randn(BATCH, 2), torch.randn(BATCH, 2, 2))
    outputs, final = scan(lengths_step, inputs, start, torch.tensor(lengths))
    assert type(final) is Pair
    for row, length in enumerate(lengths):
        own = slice(row, row + 1)
        alone, last = scan(lengths_step, inputs[:length, own], Pair(start.hidden[own], start.memory[own]))
        assert torch.equal(outputs[:length, own], alone)
        assert (outputs[length:, row] == 0).all()
        for one, two in zip(final, last, strict=True):
            assert torch.equal(one[own], two)


def test_nan_in_the_padding_does_not_reach_outputs_or_state() -> None:
    inputs = torch.randn(STEPS, BATCH, 2)
    lengths = torch.tensor([2, 5, 3])
    inputs[torch.arange(STEPS)[:, None] >= lengths] = torch.nan
    outputs, final = scan(lengths_step, inputs, Pair(torch.zeros(BATCH, 2), torch.zeros(BATCH, 2, 2)), lengths)
    assert outputs.isfinite().all()
    assert all(leaf.isfinite().all() for leaf in final)


def test_leaves_of_the_state_keep_their_types() -> None:
    def count(now: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        steps, seen = state
        return now, (steps + 1, seen | (now > 0))

    start = (torch.zeros(BATCH, dtype=torch.int64), torch.zeros(BATCH, dtype=torch.bool))
    _, (steps, seen) = scan(count, -torch.ones(STEPS, BATCH), start, torch.tensor([2, 5, 3]))
    assert torch.equal(steps, torch.tensor([2, 5, 3]))
    assert seen.dtype == torch.bool
    assert not seen.any()


def test_a_row_is_reset_at_its_starts_but_not_beyond_its_length() -> None:
    inputs = torch.randn(STEPS, BATCH, 2)
    first, initial = (Pair(torch.randn(BATCH, 2), torch.randn(BATCH, 2, 2)) for _ in range(2))
    starts = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 0, 1]]).bool().T
    lengths = torch.tensor([5, 4, 3])
    outputs, final = scan(lengths_step, inputs, first, lengths, starts, initial)
    segments = [[(0, 3, initial), (3, 5, initial)], [(0, 4, first)], [(0, 1, first), (1, 2, initial), (2, 3, initial)]]
    for row, own in enumerate(segments):
        rows = slice(row, row + 1)
        for begin, end, state in own:
            alone, last = scan(lengths_step, inputs[begin:end, rows], Pair(*(leaf[rows] for leaf in state)))
            assert torch.equal(outputs[begin:end, rows], alone)
        assert (outputs[end:, row] == 0).all()
        for one, two in zip(final, last, strict=True):
            assert torch.equal(one[rows], two)
