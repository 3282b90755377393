"""Resets in RUM's fused path on the CPU against a loop over `RUMCell.step` that begins anew, in float64."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gyral.cells.rum import RUMCell
from gyral.ops.rum import cpu as rum_cpu
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each

compiled = skip_without(rum_cpu.KERNEL.prepare)

INPUTS, HIDDEN = 3, 7


def loop(cell: RUMCell, inputs: Tensor, state: Any, lengths: Tensor | None, starts: Tensor) -> tuple[Tensor, Any]:
    """Run the steps one by one; rows whose state begins anew, and rows that have ended, are chosen one by one."""
    batch = inputs.shape[1]
    fresh = cell.init_state(batch)
    masks = cell.sequence_constants(*inputs.shape[:2])
    outputs = []
    for t, x in enumerate(inputs):
        own = masks._replace(zoneout=None if masks.zoneout is None else masks.zoneout[t])
        given = [
            torch.stack([one[row] if starts[t, row] else other[row] for row in range(batch)])
            for one, other in zip(fresh, state, strict=True)
        ]
        output, new = cell.step(cell.project(x), type(state)(*given), own)
        ended = [lengths is not None and t >= lengths[row] for row in range(batch)]
        leaves = [
            torch.stack([old[row] if ended[row] else now[row] for row in range(batch)])
            for now, old in zip(new, state, strict=True)
        ]
        state = type(state)(*leaves)
        outputs.append(torch.stack([torch.zeros_like(o) if end else o for end, o in zip(ended, output, strict=True)]))
    return torch.stack(outputs), state


def make(seed: int, *, steps: int, batch: int, ragged: bool, often: float, **options: Any) -> tuple[Any, ...]:
    """Return a cell with generic parameters, inputs, a state other than the initial one, lengths and starts."""
    torch.manual_seed(seed)
    cell = RUMCell(INPUTS, HIDDEN, **options).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        _, state = cell(torch.randn(batch, INPUTS).double())
    lengths = torch.randint(1, steps + 1, (batch,)) if ragged else None
    starts = torch.rand(steps, batch) < often
    starts[0] = torch.arange(batch) % 2 == 0
    return cell, torch.randn(steps, batch, INPUTS).double(), state, lengths, starts


def results(run: Any, cell: RUMCell, inputs: Tensor, state: Any, *others: Any) -> list[Tensor]:
    """Return outputs, final state and the gradients of inputs, initial state and parameters."""
    inputs, state = inputs.clone().requires_grad_(), tree_map(lambda leaf: leaf.clone().requires_grad_(), state)
    torch.manual_seed(7)  # of the masks and the cotangents
    outputs, final = run(inputs, state, *others)
    values = [outputs, *final]
    torch.manual_seed(8)
    cotangents = [torch.randn_like(value) for value in values]
    return [*values, *torch.autograd.grad(values, [inputs, *state, *cell.parameters()], cotangents)]


def check(cell: RUMCell, *arguments: Any) -> list[Tensor]:
    found = results(cell.fused, cell, *arguments)
    wanted = results(lambda *given: loop(cell, *given), cell, *arguments)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    return found


@for_each("lambd", [0.0, 1.0])
@for_each("ragged", [False, True])
@for_each(
    "options",
    [
        {},
        {"layer_norm": True, "layer_norm_eps": 0.1, "eta": 0.7, "activation": "tanh", "zoneout": 0.3},
        {"update_gate": False, "activation": "sigmoid", "trainable_embedding": False},
    ],
)
def test_fused_equals_the_loop(options: dict[str, Any], ragged: bool, lambd: float) -> None:
    cell, inputs, state, *others = make(1, steps=6, batch=9, ragged=ragged, often=0.3, lambd=lambd, **options)
    found = check(cell, inputs, state, *others)
    # the state passed in has no effect, and no gradient, in rows that begin anew at once
    for gradient in found[2 + (lambd == 1) :][1 : 2 + (lambd == 1)]:
        assert not gradient[others[1][0]].any()
        assert gradient[~others[1][0]].any()


@for_each("every", [1, 3, 4])
def test_checkpoints_of_the_memory(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rum_cpu, "CHECKPOINT_EVERY", every)
    for ragged, often in itertools.product([False, True], [0.1, 0.5, 1.0]):
        check(*make(2, steps=10, batch=3, ragged=ragged, often=often, lambd=1.0, eta=0.5, activation="tanh"))
