"""ON-LSTM: a step written again in numpy from the paper's equations, the master gates, what options are refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.cells.on_lstm import ONLSTMCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

X, BATCH = 3, 4


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def cumax(values: list[float]) -> list[float]:
    """Return the running sums of the softmax of one row's numbers."""
    powers = [math.exp(value) for value in values]
    return [sum(powers[: index + 1]) / sum(powers) for index in range(len(powers))]


class Rows:
    """The rows of one weight or bias by the names of the gates, as the class's docstring orders them."""

    def __init__(self, tensor: Tensor, chunks: int, size: int) -> None:
        array = tensor.detach().numpy()
        starts = np.cumsum([0, chunks, chunks, size, size, size, size])
        names = ("master_forget", "master_input", "forget", "input", "output", "candidate")
        self.of = {name: array[start:end] for name, start, end in zip(names, starts, starts[1:], strict=False)}
        assert starts[-1] == len(array)


def expected_step(cell: ONLSTMCell, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return h_t, c_t (N,) and the master gates of one row."""
    size, chunk = cell.hidden_size, cell.chunk_size
    chunks = math.ceil(size / chunk)
    w, u, b = (Rows(tensor, chunks, size).of for tensor in (cell.weight_ih, cell.weight_hh, cell.bias))
    z = {name: w[name] @ x + u[name] @ h + b[name] for name in w}
    master_forget = cumax(z["master_forget"])
    master_input = [1 - value for value in cumax(z["master_input"])]
    f, i, o = (sigmoid(z[name]) for name in ("forget", "input", "output"))
    candidate = np.tanh(z["candidate"])
    new_h, new_c = np.empty(size), np.empty(size)
    for neuron in range(size):
        m, n = master_forget[neuron // chunk], master_input[neuron // chunk]
        overlap = m * n
        forget = f[neuron] * overlap + (m - overlap)
        write = i[neuron] * overlap + (n - overlap)
        new_c[neuron] = forget * c[neuron] + write * candidate[neuron]
        new_h[neuron] = o[neuron] * math.tanh(new_c[neuron])
    return new_h, new_c, (master_forget, master_input)


@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize(("size", "chunk"), [(6, 1), (6, 2), (6, 3), (7, 3), (7, 5), (10, 4), (2, 1), (9, 8)])
def test_steps_are_the_papers_equations(size: int, chunk: int, backend: str) -> None:
    cell = ONLSTMCell(X, size, chunk_size=chunk).double()
    if backend == "fused" and cell.fused_unsupported_reason():
        pytest.skip(str(cell.fused_unsupported_reason()))
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.normal_()
    inputs = torch.randn(3, BATCH, X, dtype=torch.float64)
    state = cell.State(torch.randn(BATCH, size).double(), torch.randn(BATCH, size).double())
    with torch.no_grad():
        outputs, (final,) = Recurrent(lambda _: cell, X, backend=backend)(inputs, (state,))
    for row in range(BATCH):
        h, c = state.hidden[row].numpy(), state.cell[row].numpy()
        for time in range(3):
            h, c, _ = expected_step(cell, inputs[time, row].numpy(), h, c)
            np.testing.assert_allclose(outputs[time, row].numpy(), h, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(final.hidden[row].numpy(), h, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(final.cell[row].numpy(), c, rtol=1e-12, atol=1e-13)


def gates_seen(cell: ONLSTMCell, scale: float) -> tuple[Tensor, Tensor]:
    """Return how much each neuron keeps of c and takes of ĉ where f = i = 0 and o = 1, so that f̂ = f̃ − ω, î = ĩ − ω.

    They are read off the step itself: from c = 1 with ĉ = 0, and from c = 0 with ĉ = 1.
    """
    size, chunks = cell.hidden_size, cell.chunks
    closed = torch.zeros(4, size)
    closed[0], closed[1], closed[2] = -1e3, -1e3, 1e3
    batch = 50
    projected = torch.cat((scale * torch.randn(batch, 2 * chunks), closed.flatten().expand(batch, -1)), dim=1).double()
    zero, one = torch.zeros(batch, size).double(), torch.ones(batch, size).double()
    with torch.no_grad():
        cell.weight_hh.zero_()
        _, kept = cell.step(projected, cell.State(zero, one), cell.sequence_constants(batch))
        projected[:, -size:] = 1e3
        _, written = cell.step(projected, cell.State(zero, zero), cell.sequence_constants(batch))
    master = projected[:, : 2 * chunks].unflatten(1, (2, chunks)).softmax(-1).cumsum(-1)
    owner = torch.arange(size) // cell.chunk_size
    forget, past = master[:, 0, owner], master[:, 1, owner]
    torch.testing.assert_close(kept.cell, forget - forget * (1 - past), rtol=0, atol=1e-12)
    torch.testing.assert_close(written.cell, (1 - past) - forget * (1 - past), rtol=0, atol=1e-12)
    return kept.cell, written.cell


@for_each("scale", [0.1, 1.0, 30.0])
@for_each("given", [(6, 2), (7, 3), (20, 1)])
def test_master_gates_rise_and_fall_within_zero_and_one(given: tuple[int, int], scale: float) -> None:
    """A neuron remembers the longer the higher its rank: f̃(1 − ĩ) rises and ĩ(1 − f̃) falls."""
    size, chunk = given
    kept, written = gates_seen(ONLSTMCell(X, size, chunk_size=chunk).double(), scale)
    rounding = 1e-12
    for gate in (kept, written):
        assert (gate >= -rounding).all()
        assert (gate <= 1 + rounding).all()
    assert (kept.diff(dim=1) >= -rounding).all()
    assert (written.diff(dim=1) <= rounding).all()
    # the last chunk keeps all and takes nothing, whatever the scores: both running sums end at one
    torch.testing.assert_close(kept[:, -1], torch.ones(50).double())
    torch.testing.assert_close(written[:, -1], torch.zeros(50).double(), rtol=0, atol=rounding)
    # neurons of a chunk share their entry
    owner = torch.arange(size) // chunk
    same = owner[1:] == owner[:-1]
    assert (kept.diff(dim=1)[:, same] == 0).all()


@for_each("given", [(50, 10), (52, 10), (7, 3), (2, 1)])
def test_parameter_count_is_the_formula(given: tuple[int, int]) -> None:
    size, chunk = given
    rows = 2 * math.ceil(size / chunk) + 4 * size
    count = sum(parameter.numel() for parameter in ONLSTMCell(X, size, chunk_size=chunk).parameters())
    assert count == rows * (X + size + 1)
    normalized = ONLSTMCell(X, size, chunk_size=chunk, layer_norm=True)
    assert sum(parameter.numel() for parameter in normalized.parameters()) == count + 8 * size


def test_initialization_is_uniform() -> None:
    size = 100
    cell = ONLSTMCell(30, size)
    for parameter in cell.parameters():
        assert parameter.abs().max() <= size**-0.5
        assert parameter.std().item() == pytest.approx(size**-0.5 / 3**0.5, rel=0.1)


def test_layer_norm_normalizes_the_gates_but_not_the_master_gates() -> None:
    size, chunk = 7, 3
    cell = ONLSTMCell(X, size, chunk_size=chunk, layer_norm=True).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.normal_()
    projected = torch.randn(BATCH, len(cell.bias)).double()
    state = cell.State(torch.randn(BATCH, size).double(), torch.randn(BATCH, size).double())
    chunks = cell.chunks
    with torch.no_grad():
        hidden, new = cell.step(projected, state, cell.sequence_constants(BATCH))
        z = projected + state.hidden @ cell.weight_hh.T
        parts = z[:, 2 * chunks :].unflatten(1, (4, size))
        centered = parts - parts.mean(-1, keepdim=True)
        normal = centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        f, i, o, candidate = (normal * cell.norm_gates.weight + cell.norm_gates.bias).unbind(1)
        owner = torch.arange(size) // chunk
        forget = z[:, :chunks].softmax(-1).cumsum(-1)[:, owner]
        take = 1 - z[:, chunks : 2 * chunks].softmax(-1).cumsum(-1)[:, owner]
        overlap = forget * take
        c = (f.sigmoid() * overlap + forget - overlap) * state.cell
        c += (i.sigmoid() * overlap + take - overlap) * candidate.tanh()
    torch.testing.assert_close(new.cell, c, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(hidden, o.sigmoid() * c.tanh(), rtol=1e-12, atol=1e-12)


@for_each("chunk", [0, -1, 7, 8, 2.0, "3", True])
def test_bad_chunk_sizes_are_refused_in_one_line(chunk: Any) -> None:
    with pytest.raises(OptionError) as caught:
        ONLSTMCell(X, 7, chunk_size=chunk)
    assert str(caught.value) == f"chunk_size={chunk}: must be an integer from 1 to 6"


@for_each("size", [1, 0, 2.5])
def test_a_size_without_two_chunks_is_refused(size: Any) -> None:
    with pytest.raises(OptionError, match=rf"^hidden_size={size}: must be an integer ≥ 2$"):
        ONLSTMCell(X, size, chunk_size=1)
