"""`gyral.ops.graph_gru` against the equations in numpy; test_contract.py has what every operator keeps."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gyral.ops import graph_gru
from tests.ops.contract import FLAG, Contract, Named, assert_close, choices


def drawn(
    *sizes: int,
    edge_size: int | None = 4,
    edge_types: int = 2,
    slots: int = 2,
    share: float = 0.5,
    edges: bool = True,
    memory: int = 12,
    capacity: int | None = None,
    carry: str = "previous",
    bias: bool = True,
    wild: bool = False,
    far: bool = False,
) -> tuple[Named, Named]:
    """Return inputs, weights and memory, and the edges, a share of them present, some of them from too `far` away."""
    steps, batch, inputs, first = sizes
    units = first + (0 if edge_size is None else edge_types * edge_size)
    gathered = units * (edge_types + 1) if edge_size is None else units
    shape = steps, batch, edge_types, slots
    earlier = (1 + torch.rand(shape) * (torch.arange(steps).view(-1, 1, 1, 1) + memory + 2)).long()
    earlier = (earlier if far else earlier.clamp(max=memory)) * (torch.rand(shape) < share)
    if wild:
        extreme = torch.tensor([-1, -5, 2**40, 2**63 - 1, -(2**63)])
        earlier = torch.where(torch.rand(shape) < 0.3, extreme[torch.randint(5, shape)], earlier)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    tensors = {
        "x": draw(steps, batch, inputs),
        "w_ih": 0.5 * draw(3 * units, inputs),
        "w_hh": draw(3 * units, gathered) / units**0.5,
        "b": 0.3 * draw(3 * units) if bias else None,
        "memory": draw(batch, memory, units),
    }
    carry = "previous" if edge_size is None else carry
    options = {"earlier": earlier if edges else None, "edge_types": edge_types, "edge_size": edge_size}
    return tensors, {**options, "carry": carry, "capacity": capacity, **({} if bias else {"b": None})}


def in_numpy(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    memory: Tensor,
    b: Tensor | None,
    earlier: Tensor | None,
    edge_types: int,
    edge_size: int | None,
    carry: str,
    capacity: int | None,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and the new memory: the equations, one unit and one edge at a time."""
    (steps, batch, _), units, kept = x.shape, memory.shape[2], capacity or memory.shape[1]
    first = units - edge_types * (edge_size or 0)
    weight_ih, weight_hh = w_ih.numpy(), w_hh.numpy()
    bias = np.zeros(3 * units) if b is None else b.numpy()
    outputs, final = np.zeros((steps, batch, units)), np.zeros((batch, kept, units))

    def sigma(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    for row in range(batch):
        past = list(memory[row].numpy())
        for time in range(steps if lengths is None else int(lengths[row])):
            if starts is not None and starts[time, row]:
                past = [np.zeros(units) for _ in past]
            slices = [past[-1] if edge_size is None else past[-1][:first]]
            for kind in range(edge_types):
                total = np.zeros(units)
                for distance in [] if earlier is None else earlier[time, row, kind].tolist():
                    if 0 < distance <= len(past):
                        total += past[-distance]
                begin = first + kind * (edge_size or 0)
                slices.append(total if edge_size is None else total[begin : begin + edge_size])
            linked = np.concatenate(slices)
            p, q = weight_ih @ x[time, row].numpy() + bias, weight_hh @ linked
            r, z = sigma(p[:units] + q[:units]), sigma(p[units : 2 * units] + q[units : 2 * units])
            n = np.tanh(p[2 * units :] + r * q[2 * units :])
            carried = linked if carry == "linked" else past[-1]
            outputs[time, row] = (1 - z) * n + z * carried
            past.append(outputs[time, row])
        past = past[-kept:]
        final[row, kept - len(past) :] = past
    return outputs, final


CONTRACT = Contract(
    run=graph_gru.graph_gru,
    draw=drawn,
    kinds=[{"edge_size": 4}, {"edge_size": None}, {"edge_size": 4, "carry": "linked"}],
    sizes=[(1, 1, 1, 1), (5, 2, 2, 3), (9, 7, 2, 8), (20, 3, 7, 4)],  # T, B, X, units of type 0
    others=[
        ((5, 2, 2, 3), {"memory": 2, "far": True, **options})
        for options in ({"capacity": 1}, {"capacity": 24}, {"edges": False}, {"bias": False}, {"wild": True})
    ],
    large=[((7, 37, 2, 150), {"edge_size": None})],
    random=choices(
        *([1, 2, 3, 5, 9, 20], [1, 2, 7, 8, 9, 17], [1, 2, 7], [1, 3, 4, 8, 16, 33]),
        edge_size=[1, 2, 4, 7, 16, 17, None],
        edge_types=[1, 1, 2, 3],
        slots=[1, 1, 2, 3],
        share=[0.0, 0.1, 0.5, 1.0],
        edges=[True, True, True, False],
        memory=[1, 2, 5, 20],
        capacity=[None, None, 1, 3, 24],
        carry=["previous", "linked"],
        bias=FLAG,
        wild=[False, False, False, True],
        far=[True],
    ),
    few=12,
    small=(9, 19, 2, 3),
    tiny=(3, 2, 1, 1),
    states=["memory"],
    inputs=["x"],
    truth=in_numpy,
    exact=1e-10,
    single=1e-3,
    stride=3,
    apart=0,
    loops=True,
)


def test_without_edges_it_is_a_gru() -> None:
    torch.manual_seed(0)
    layer = nn.GRU(5, 12).double()
    with torch.no_grad():
        layer.bias_hh_l0.zero_()
    inputs, hidden = torch.randn(9, 4, 5, dtype=torch.float64), torch.randn(4, 12, dtype=torch.float64)
    expected, _ = layer(inputs, hidden.unsqueeze(0))
    weights = [tensor.detach() for tensor in (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0)]
    weights[1] = torch.cat((weights[1], torch.full_like(weights[1], 3.0)), dim=1)  # meets only zeros
    for edges in (None, torch.zeros(9, 4, 1, 2, dtype=torch.int32)):
        outputs, _ = graph_gru.graph_gru(inputs, *weights, hidden.unsqueeze(1), edges, edge_types=1, edge_size=None)
        torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)


def test_the_order_of_edges_within_a_step_changes_nothing() -> None:
    case = CONTRACT.case((9, 5, 2, 3), {"slots": 4, "share": 0.6})
    expected = case.results()
    case.options["earlier"] = case.options["earlier"][..., [2, 0, 3, 1]]
    assert_close(case.results(), expected, 1e-13)


def test_edges_of_another_shape_or_of_all_units_are_refused() -> None:
    case = CONTRACT.case((3, 2, 2, 3), {"edge_size": 2})
    case.options["earlier"] = case.options["earlier"][:, :, :1]
    with pytest.raises(ValueError, match=r"earlier must be \(3, 2, 2\) × D, not \(3, 2, 1, "):
        case.values()
    with pytest.raises(ValueError, match=r'carry="linked" needs an edge_size'):
        CONTRACT.run(**case.tensors, **case.options | {"edge_size": None, "carry": "linked"})
