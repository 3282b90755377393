"""What the published formulas of cells with a memory matrix leave to chance: first steps, orders, precision."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.cells.base import RecurrentCell
from gyral.cells.gla import GLACell
from gyral.cells.hgrn2 import HGRN2Cell
from gyral.cells.mamba2 import Mamba2Cell
from gyral.cells.mlstm import MLSTMCell, MLSTMLargeCell
from gyral.cells.rwkv7 import RWKV7Cell
from gyral.nn.recurrent import Recurrent
from gyral.ops.token_shift import mixed
from tests.helpers.loops import for_each

CELLS = {
    "gla": lambda: GLACell(6, 8, heads=2),
    "hgrn2": lambda: HGRN2Cell(6, 8, heads=2),
    "mamba2": lambda: Mamba2Cell(6, 8, heads=2, state_size=4),
    "mlstm": lambda: MLSTMCell(6, 8, heads=2),
    "mlstm_large": lambda: MLSTMLargeCell(6, 8, heads=2),
    "rwkv7": lambda: RWKV7Cell(6, 8, heads=2),
}
BACKENDS = ("reference", "fused")


def run(cell: RecurrentCell, backend: str, inputs: Tensor, *arguments: object) -> tuple[Tensor, tuple]:
    return Recurrent(lambda _: cell, cell.input_size, backend=backend)(inputs, *arguments)


@for_each("backend", BACKENDS)
@for_each("name", CELLS)
def test_the_state_is_float32_under_autocast(name: str, backend: str) -> None:
    cell, inputs = CELLS[name](), torch.randn(20, 3, 6)
    exact, (expected,) = run(cell, backend, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, (state,) = run(cell, backend, inputs)
    assert all(leaf.dtype == torch.float32 for leaf in state)
    torch.testing.assert_close(outputs.float(), exact, rtol=0.1, atol=0.1)
    for one, other in zip(state, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.1)


@for_each("backend", BACKENDS)
@for_each("name", ["mlstm", "mlstm_large"])
def test_the_first_step_of_a_segment_has_its_own_gate_as_stabilizer(name: str, backend: str) -> None:
    """With m_0 = 0 it would be max(f̄, i), and with differences of −10³⁰ the decays of a chunk would have no digits."""
    cell = CELLS[name]().double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
        cell.bias_gates[: cell.heads] = -20.0
    inputs = torch.randn(7, 3, 6, dtype=torch.float64)
    _, (first,) = run(cell, backend, inputs[:1])
    assert (first.stabilizer < -3).all()  # i, far below log σ(f)
    outputs, (last,) = run(cell, backend, inputs)
    starts = torch.zeros(14, 3, dtype=torch.bool)
    starts[7] = True
    again, (other,) = run(cell, backend, torch.cat((100 * inputs, inputs)), None, None, starts)
    torch.testing.assert_close(again[7:], outputs, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(tuple(other), tuple(last), rtol=1e-11, atol=1e-11)


def test_mamba_2_applies_the_gate_before_the_norm() -> None:
    cell = Mamba2Cell(6, 8, heads=2, state_size=4)
    inputs = torch.randn(5, 3, 6)
    outputs, _ = run(cell, "fused", inputs)
    torch.testing.assert_close(outputs.square().mean(-1), torch.ones(5, 3), rtol=0.05, atol=0.2)
    with torch.no_grad():
        cell.weight_ih[: cell.width] *= 1000  # a gate after the norm would scale the outputs
    assert run(cell, "fused", inputs)[0].square().mean() < 1.01


@for_each("lower_bound", [0.0, 0.25])
def test_forget_gates_of_hgrn2_are_exact_where_they_are_closed_or_open(lower_bound: float) -> None:
    cell = HGRN2Cell(1, 1, heads=1, lower_bound=lower_bound)
    logits = torch.tensor([-1e4, -30.0, 0.0, 30.0, 1e4]).unsqueeze(1)
    k, decay = cell.gates(logits)
    exact = lower_bound + (1 - lower_bound) * torch.sigmoid(logits.double())
    torch.testing.assert_close(k.flatten(), (1 - lower_bound) * torch.sigmoid(-logits.flatten()))
    torch.testing.assert_close(decay.exp().flatten().double(), exact.flatten(), rtol=1e-6, atol=1e-12)
    assert decay.isfinite().all()
    if lower_bound == 0:
        torch.testing.assert_close(decay.flatten(), F.logsigmoid(logits).flatten())


@for_each("backend", BACKENDS)
def test_rwkv_7_erases_what_a_key_read_before_the_decay(backend: str) -> None:
    cell = RWKV7Cell(6, 8, heads=2).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    inputs = torch.randn(2, 3, 6, dtype=torch.float64)
    _, (before,) = run(cell, backend, inputs[:1])
    _, (after,) = run(cell, backend, inputs)
    mixes = mixed(cell.project(inputs[1]).values, cell.mix, cell.project(inputs[0]).values)
    found = cell.projected(*mixes)
    rate, decay = torch.sigmoid(found.a), torch.exp(-math.exp(-0.5) * torch.sigmoid(found.w))
    written = found.k * (1 + (rate - 1) * cell.k_a)
    parts = found.k * cell.k_k, written, found.v, rate, decay
    key, k, v, rate, decay = (part.unflatten(-1, (2, 4)) for part in parts)
    key = key / key.norm(dim=-1, keepdim=True)
    erased = torch.einsum("bhkv,bhk->bhv", before.memory, key)
    expected = decay.unsqueeze(-1) * before.memory
    expected = expected - torch.einsum("bhk,bhv->bhkv", rate * key, erased) + torch.einsum("bhk,bhv->bhkv", k, v)
    torch.testing.assert_close(after.memory, expected, rtol=1e-11, atol=1e-11)
