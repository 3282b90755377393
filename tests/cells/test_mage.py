"""MAGE-GRU and MAGE against an independent transcription of the equations, and what edges and options do."""

from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import gyral
from gyral.cells.inputs import LinkedInputs
from gyral.cells.mage import MAGECell
from gyral.cells.mage_gru import MAGEGRUCell
from gyral.core.edges import Edge, Edges, encode_edges, invert
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

STEPS, ROWS, INPUTS, UNITS, TYPES = 9, 3, 4, 7, 2

EDGES = (
    # several edges of a type into a step, edges of two types from one step, a row without edges
    (Edge(0, 2), Edge(1, 2), Edge(0, 2, 2), Edge(2, 8), Edge(3, 4, 2), Edge(0, 8), Edge(5, 8)),
    (),
    (Edge(0, 1), Edge(1, 5, 2), Edge(1, 6), Edge(2, 5, 2)),
)

CELLS: dict[str, dict[str, Any]] = {
    "own units": {"edge_size": 2},
    "shared units": {"edge_size": None},
    "linked": {"edge_size": 2, "carry": "linked"},
    "attention": {"edge_size": 2, "carry": "linked", "edge_attention": True},
    "attention, shared units": {"edge_size": None, "edge_attention": True},
}


def edges_of(sequences: Any = EDGES, steps: int = STEPS, types: int = TYPES) -> Edges:
    """Return edges with leaves (T, B, E, D)."""
    encoded = encode_edges(sequences, steps, types)
    return Edges(*(leaf.transpose(0, 1) for leaf in encoded))


def make(backend: str = "auto", **options: Any) -> gyral.MAGEGRU:
    torch.manual_seed(0)
    return gyral.MAGEGRU(
        INPUTS, UNITS, edge_types=TYPES, capacity=STEPS, dtype=torch.float64, backend=backend, **options
    )


def inputs(steps: int = STEPS, rows: int = ROWS) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(steps, rows, INPUTS, dtype=torch.float64)


def transcribed(cell: MAGEGRUCell, vectors: np.ndarray, edges: Any) -> np.ndarray:
    """Return h (T, N) of one sequence: the equations of the paper with a loop over types, blocks and edges."""
    size, count, types = cell.edge_size, cell.hidden_size, cell.edge_types
    first = count if size is None else count - types * size
    own = [slice(0, first)] + [
        slice(0, count) if size is None else slice(first + k * size, first + (k + 1) * size) for k in range(types)
    ]
    columns, position = [], 0
    for part in own:  # the block of each type in U
        columns.append(slice(position, position + part.stop - part.start))
        position = columns[-1].stop
    weights = {
        gate: (
            cell.weight_ih.detach().numpy()[rows],
            cell.weight_hh.detach().numpy()[rows],
            cell.bias.detach().numpy()[rows],
        )
        for gate, rows in (("r", slice(0, count)), ("z", slice(count, 2 * count)), ("h", slice(2 * count, None)))
    }
    incoming = defaultdict(list)
    for step in range(1, len(vectors)):
        incoming[step].append((step - 1, 0))
    for source, target, kind in edges:
        incoming[target].append((source, kind))
    hidden: list[np.ndarray] = []

    def products(gate: str, step: int) -> tuple[np.ndarray, np.ndarray]:
        of_input, of_hidden, bias = weights[gate]
        total = np.zeros(count)
        for source, kind in incoming[step]:
            total = total + shares[kind] * of_hidden[:, columns[kind]] @ hidden[source][own[kind]]
        return of_input @ vectors[step] + bias, total

    def attention(step: int) -> np.ndarray:
        """Return E + 1 times the weight of each type."""
        if not cell.edge_attention:
            return np.ones(types + 1)
        parts = (cell.attention_ih, cell.attention_hh, cell.attention_bias)
        of_input, of_hidden, bias = (part.detach().numpy() for part in parts)
        scores = of_input @ vectors[step] + bias
        for source, kind in incoming[step]:
            scores = scores + of_hidden[:, columns[kind]] @ hidden[source][own[kind]]
        return (types + 1) * np.exp(scores) / np.exp(scores).sum()

    for step in range(len(vectors)):
        shares = attention(step)
        reset = 1 / (1 + np.exp(-sum(products("r", step))))
        update = 1 - 1 / (1 + np.exp(-sum(products("z", step))))  # the paper's z is 1 minus that of torch
        of_input, of_hidden = products("h", step)
        candidate = np.tanh(of_input + reset * of_hidden)
        carried = hidden[-1] if step else np.zeros(count)
        if cell.carry == "linked":
            carried = np.zeros(count)
            for source, kind in incoming[step]:
                carried[own[kind]] += shares[kind] * hidden[source][own[kind]]
        hidden.append((1 - update) * carried + update * candidate)
    return np.array(hidden)


@for_each("backend", ["reference", "auto"])
@for_each("options", CELLS.values())
def test_equals_the_equations(options: dict[str, Any], backend: str) -> None:
    layer, given = make(backend, **options), inputs()
    outputs, _ = layer(LinkedInputs(given, edges_of()))
    for row, edges in enumerate(EDGES):
        expected = transcribed(layer.cells[0], given[:, row].numpy(), edges)
        np.testing.assert_allclose(outputs[:, row].detach().numpy(), expected, rtol=0, atol=1e-12)


@for_each("options", CELLS.values())
def test_gradients_equal_finite_differences(options: dict[str, Any]) -> None:
    layer, edges = make(**options), edges_of()
    parameters = list(layer.parameters())
    given = inputs().requires_grad_()

    def run(vectors: Tensor, *_: Tensor) -> Tensor:
        return layer(LinkedInputs(vectors, edges))[0]

    assert torch.autograd.gradcheck(run, (given, *parameters), fast_mode=True)


@for_each("backend", ["reference", "auto"])
@for_each("lengths", [None, [9, 4, 6]])
def test_the_backward_direction_reads_the_same_edges_from_their_other_ends(backend: str, lengths: Any) -> None:
    """Reading a reversed sequence with reversed edges forward gives the outputs of the backward direction."""
    layer, given, edges = make(backend, edge_size=2, bidirectional=True), inputs(), edges_of()
    outputs, _ = layer(LinkedInputs(given, edges), lengths=lengths)
    alone = make(backend, edge_size=2)
    alone.cells[0].load_state_dict(layer.cells[1].state_dict())
    for row, own in enumerate(EDGES):
        length = STEPS if lengths is None else lengths[row]
        turned = [Edge(length - 1 - b, length - 1 - a, kind) for a, b, kind in own if b < length]
        expected, _ = alone(LinkedInputs(given[:length, row : row + 1].flip(0), edges_of([turned], length)))
        torch.testing.assert_close(outputs[:length, row, UNITS:], expected[:, 0].flip(0), rtol=0, atol=1e-12)
    without_later, _ = layer(LinkedInputs(given, edges.earlier), lengths=lengths)
    torch.testing.assert_close(without_later, outputs, rtol=0, atol=0)


@for_each("backend", ["reference", "auto"])
@for_each("options", CELLS.values())
def test_two_pieces_equal_the_whole(options: dict[str, Any], backend: str) -> None:
    layer, given, edges = make(backend, **options), inputs(), edges_of().earlier
    expected, final = layer(LinkedInputs(given, edges))
    first, state = layer(LinkedInputs(given[:4], edges[:4]))
    second, last = layer(LinkedInputs(given[4:], edges[4:]), state)
    torch.testing.assert_close(torch.cat((first, second)), expected, rtol=0, atol=1e-12)
    for one, other in zip(last, final, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@for_each("backend", ["reference", "auto"])
def test_segments_are_independent_sequences(backend: str) -> None:
    layer, given = make(backend, edge_size=2), inputs(rows=1)
    starts = torch.zeros(STEPS, 1, dtype=torch.bool)
    starts[5] = True
    first, second = [Edge(0, 2), Edge(1, 4, 2)], [Edge(0, 3), Edge(1, 3, 2)]
    joined = edges_of([[*first, *(Edge(a + 5, b + 5, kind) for a, b, kind in second)]])
    outputs, state = layer(LinkedInputs(given, joined), starts=starts)
    expected = [
        layer(LinkedInputs(given[:5], edges_of([first], 5)))[0],
        layer(LinkedInputs(given[5:], edges_of([second], 4)))[0],
    ]
    torch.testing.assert_close(outputs, torch.cat(expected), rtol=0, atol=1e-12)
    assert state.count.tolist() == [[4]]
    with pytest.raises(ValueError, match="distance of 3 at a step with fewer steps before it"):
        layer(LinkedInputs(given, edges_of([[Edge(3, 6)]])), starts=starts)


@for_each("backend", ["reference", "auto"])
def test_lengths_cut_sequences_and_their_edges(backend: str) -> None:
    layer, given, edges, lengths = make(backend, edge_size=2), inputs(), edges_of().earlier, [3, 9, 6]
    outputs, state = layer(LinkedInputs(given, edges), lengths=lengths)
    assert state.count.tolist() == [lengths]
    for row, length in enumerate(lengths):
        expected, alone = layer(LinkedInputs(given[:length, row : row + 1], edges[:length, row : row + 1]))
        torch.testing.assert_close(outputs[:length, row : row + 1], expected, rtol=0, atol=1e-12)
        assert not outputs[length:, row].any()
        torch.testing.assert_close(state.memory[:, row : row + 1], alone.memory, rtol=0, atol=1e-12)


@for_each("backend", ["reference", "auto"])
def test_the_order_of_edges_within_a_step_is_irrelevant(backend: str) -> None:
    layer, given, edges = make(backend, edge_size=2), inputs(), edges_of().earlier
    expected, _ = layer(LinkedInputs(given, edges))
    torch.testing.assert_close(layer(LinkedInputs(given, edges.flip(3)))[0], expected, rtol=0, atol=1e-14)


@for_each("options", [{"edge_size": None}, {"edge_size": 2}])
@for_each("backend", ["reference", "auto"])
def test_without_edges_it_is_a_gru(options: dict[str, Any], backend: str) -> None:
    """All units read those of type 0 alone, which are a `torch.nn.GRU`."""
    layer, given = make(backend, **options), inputs()
    cell = layer.cells[0]
    first = UNITS if cell.edge_size is None else UNITS - TYPES * cell.edge_size
    gru = torch.nn.GRU(INPUTS, first, dtype=torch.float64)
    rows = torch.cat([torch.arange(first) + gate * UNITS for gate in range(3)])
    with torch.no_grad():
        gru.weight_ih_l0.copy_(cell.weight_ih[rows])
        gru.weight_hh_l0.copy_(cell.weight_hh[rows, :first])
        gru.bias_ih_l0.copy_(cell.bias[rows])
        gru.bias_hh_l0.zero_()
    torch.testing.assert_close(layer(given)[0][..., :first], gru(given)[0], rtol=0, atol=1e-12)


# ---------------------------------------------------------------- MAGE around other cells


def test_mage_around_a_gru_is_the_linked_mage_gru() -> None:
    expected = make("reference", edge_size=2, carry="linked")
    cell = expected.cells[0]
    layer = gyral.MAGE(INPUTS, UNITS, edge_types=TYPES, edge_size=2, capacity=STEPS, dtype=torch.float64)
    inner = layer.cells[0].cell.layer
    with torch.no_grad():
        inner.weight_ih_l0.copy_(cell.weight_ih)
        inner.weight_hh_l0.copy_(cell.weight_hh)
        inner.bias_ih_l0.copy_(cell.bias)
        inner.bias_hh_l0.zero_()
    given, edges = inputs(), edges_of()
    torch.testing.assert_close(
        layer(LinkedInputs(given, edges))[0], expected(LinkedInputs(given, edges))[0], rtol=0, atol=1e-12
    )


def test_mage_around_an_elman_network_sums_all_predecessors() -> None:
    """The DAG-RNN of Shuai et al.: h_v = tanh(U x_v + W Σ h_u + b)."""
    layer = gyral.MAGE(
        INPUTS, UNITS, cell=gyral.RNNCell, edge_types=TYPES, edge_size=None, capacity=STEPS, dtype=torch.float64
    )
    given = inputs()
    outputs, _ = layer(LinkedInputs(given, edges_of()))
    inner = layer.cells[0].cell.layer
    bias = inner.bias_ih_l0 + inner.bias_hh_l0
    for row, edges in enumerate(EDGES):
        hidden: list[Tensor] = []
        for step in range(STEPS):
            sources = ([step - 1] if step else []) + [source for source, target, _ in edges if target == step]
            total = sum((hidden[source] for source in sources), torch.zeros(UNITS, dtype=torch.float64))
            hidden.append(torch.tanh(inner.weight_ih_l0 @ given[step, row] + inner.weight_hh_l0 @ total + bias))
        torch.testing.assert_close(outputs[:, row], torch.stack(hidden), rtol=0, atol=1e-12)


@for_each("inner", [gyral.RUMCell, partial(gyral.RUMCell, lambd=1.0), gyral.LSTMCell])
def test_mage_around_other_cells_reads_along_edges(inner: Any) -> None:
    torch.manual_seed(0)
    layer = gyral.MAGE(INPUTS, UNITS, cell=inner, edge_types=TYPES, edge_size=2, capacity=STEPS, dtype=torch.float64)
    given = inputs()
    with_edges, without = layer(LinkedInputs(given, edges_of()))[0], layer(given)[0]
    first = [min((target for _, target, _ in edges), default=STEPS) for edges in EDGES]
    for row, step in enumerate(first):
        torch.testing.assert_close(with_edges[:step, row], without[:step, row], rtol=0, atol=0)
        assert step == STEPS or not torch.equal(with_edges[step:, row], without[step:, row])


@for_each("edge_size", [None, 2])
@for_each("inner", [gyral.GRUCell, partial(gyral.RUMCell, lambd=1.0), gyral.LSTMCell])
def test_the_fused_loop_of_mage_equals_the_reference(inner: Any, edge_size: int | None) -> None:
    """From a state in the middle of a sequence, with lengths and starts: values, first and second derivatives."""
    found = []
    edges = edges_of().earlier.clone()
    edges[4, 1, 0] = torch.tensor([6, 4, 0])  # reaches into the state, twice
    starts = torch.zeros(STEPS, ROWS, dtype=torch.bool)
    starts[1, 2] = starts[7, 1] = True
    edges[:, 2] = 0
    for backend in ("reference", "fused"):
        torch.manual_seed(0)
        layer = gyral.MAGE(
            *(INPUTS, UNITS), cell=inner, edge_types=TYPES, edge_size=edge_size, capacity=STEPS, dtype=torch.float64,
            backend=backend,
        )  # fmt: skip
        given = inputs().requires_grad_()
        _, state = layer(inputs(3))
        outputs, final = layer(LinkedInputs(given, edges), state, [9, 8, 6], starts)
        values = [outputs, *(leaf for leaf in tree_leaves(final) if leaf.is_floating_point())]
        leaves = [given, *layer.parameters()]
        first = torch.autograd.grad(sum(value.sin().sum() for value in values), leaves, create_graph=True)
        second = torch.autograd.grad(sum(each.sin().sum() for each in first), leaves)
        found.append([*values, tree_leaves(final)[-1], *first, *second])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------- edges and errors


def test_distances_to_later_steps_are_the_same_edges() -> None:
    edges = edges_of()
    assert torch.equal(invert(edges.earlier), edges.later)
    found = {
        (t - int(d), t, row, kind + 1)
        for t, row, kind, slot in edges.earlier.nonzero().tolist()
        for d in [edges.earlier[t, row, kind, slot]]
    }
    assert found == {(a, b, row, kind) for row, own in enumerate(EDGES) for a, b, kind in own}


@for_each("backend", ["reference", "auto"])
def test_an_edge_from_before_the_first_step_is_refused(backend: str) -> None:
    layer, edges = make(backend, edge_size=2), torch.zeros(STEPS, ROWS, TYPES, 1, dtype=torch.int64)
    edges[2, 1, 0, 0] = 3
    with pytest.raises(ValueError, match="have a distance of 3 at a step with fewer steps before it"):
        layer(LinkedInputs(inputs(), edges))
    _, state = layer(inputs(1))
    layer(LinkedInputs(inputs(), edges), state)  # a step was carried over
    edges[2, 1, 0, 0] = 0
    edges[8, 1, 0, 0] = STEPS + 2
    with pytest.raises(
        OptionError, match="capacity=9: must be at least 10, because an edge reaches back over 11 steps"
    ):
        layer(LinkedInputs(inputs(), edges))


@for_each(
    "given",
    [
        (torch.zeros(STEPS, ROWS, 3, 1, dtype=torch.int64), "^edge_types=2: must be 3, the types of the edges$"),
        (torch.zeros(STEPS, ROWS, 2, dtype=torch.int64), r"of shape \(9, 3, 2\), must be distances"),
        (torch.zeros(STEPS, 1, 2, 1, dtype=torch.int64), "^all inputs must have the same number of steps and rows$"),
        (torch.zeros(STEPS, ROWS, 2, 1), "^edges have a torch.float32 tensor"),
        (torch.full((STEPS, ROWS, 2, 1), -1), "^edges have a distance of -1, must be ≥ 0"),
        ([(0, 1)], "^edges are a list, must be gyral.Edges or a tensor$"),
    ],
)
def test_wrong_edges_are_refused(given: tuple[Any, str]) -> None:
    edges, message = given
    with pytest.raises(ValueError, match=message):
        make(edge_size=2)(LinkedInputs(inputs(), edges))


@for_each(
    "given",
    [
        (
            MAGEGRUCell,
            {"edge_size": 4, "edge_types": 2},
            "edge_size=4: 2 types of this size must be smaller than hidden_size, 7",
        ),
        (MAGEGRUCell, {"edge_size": None, "carry": "linked"}, "carry=linked: must be previous"),
        (MAGEGRUCell, {"carry": "none", "edge_size": 2}, "carry=none: must be one of previous, linked"),
        (MAGECell, {"cell": partial(gyral.RNNCell, hidden_size=3), "edge_size": 2}, "cell.hidden_size=3: "),
        (MAGECell, {"cell": gyral.NTMCell, "edge_size": 2}, "cell=NTMCell: must have a hidden vector of size 7"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: tuple[Any, dict[str, Any], str]) -> None:
    cell, options, message = given
    with pytest.raises(OptionError, match=f"^{message}"):
        cell(INPUTS, UNITS, **options)


def test_other_cells_ignore_edges() -> None:
    layer, given = gyral.GRU(INPUTS, UNITS, dtype=torch.float64), inputs()
    assert torch.equal(layer(LinkedInputs(given, edges_of()))[0], layer(given)[0])


def test_the_task_determines_the_capacity() -> None:
    model = Recurrent(partial(MAGEGRUCell, hidden_size=UNITS, edge_size=2), INPUTS)
    model.cells[0].reserve(40)
    assert model.init_state(1)[0].memory.shape == (1, 40, UNITS)
    chosen = MAGEGRUCell(INPUTS, UNITS, edge_size=2, capacity=5)
    chosen.reserve(40)
    assert chosen.capacity == 5
