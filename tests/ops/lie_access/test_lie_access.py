"""`gyral.ops.lie_access`, and the cell that runs on it; test_contract.py has what every operator keeps."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from gyral.cells.gru import GRUCell
from gyral.cells.inputs import MaskedInputs
from gyral.cells.lantm import OPEN, LANTMCell
from gyral.cells.lstm import LSTMCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from gyral.ops import lie_access
from gyral.ops.lie_access import MemoryState, Options, Weights
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.ops.contract import FLAG, Contract, Named, choices, each

compiled = skip_without(lie_access.OPERATOR)

GROUPS, VECTORS = ("translation", "rotation", "scaling_rotation"), MemoryState._fields[:7]


def drawn(
    *sizes: int,
    group: str = "translation",
    softmax: bool = False,
    normalizes: bool = True,
    forget: float = 0.5,
    read_first: bool = False,
    bias: bool = True,
    opened: bool = False,
    masked: bool = True,
    begun: bool = True,
) -> tuple[Named, Named]:
    steps, batch, inputs, hidden, width, capacity = sizes

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    vectors = {"hidden": hidden, "cell_state": hidden, "read_vector": width}
    outputs = 13 + width + softmax
    tensors = {
        "x": draw(steps, batch, inputs),
        "w_ih": draw(4 * hidden, inputs + width) / 2,
        "b": draw(4 * hidden) / 2 if bias else None,
        "w_hh": draw(4 * hidden, hidden) / hidden**0.5,
        "head_weight": draw(outputs, hidden) / hidden**0.5,
        "head_bias": draw(outputs) / 2,
        **{name: draw(batch, vectors.get(name, 2)) for name in VECTORS},
        "keys": draw(batch, capacity, 2),
        "vectors": draw(batch, capacity, width),
        "strengths": draw(batch, capacity).sigmoid(),
        **{f"fresh_{name}": draw(1, vectors.get(name, 2)) for name in VECTORS},
    }
    if opened:  # both gates of the steps, as without interpolation
        for place in (5, 12 + width):
            tensors["head_weight"][place], tensors["head_bias"][place] = 0, OPEN
    count = torch.randint(1, capacity + 1, (batch,)) if begun else torch.zeros(batch, dtype=torch.int64)
    return tensors, {
        "count": count,
        "write": torch.rand(steps, batch) < 0.6 if masked else None,
        "options": Options(group, normalizes, softmax, max(1, round(forget * capacity)), read_first),
    }


def run(x: Tensor, options: Options, count: Tensor, **given: Any) -> tuple[Tensor, MemoryState]:
    weights = Weights(*(given.get(name) for name in Weights._fields))
    memory = [given[name] for name in ("keys", "vectors", "strengths")]
    state = MemoryState(*(given[name] for name in VECTORS), *memory, count)
    fresh = MemoryState(*(given[f"fresh_{name}"] for name in VECTORS), *memory, count)
    masks = {name: given[name] for name in ("write", "lengths", "starts")}
    return lie_access.lie_access(x, weights, state, options, fresh=fresh, **masks)


CONTRACT = Contract(
    run=run,
    draw=drawn,
    kinds=each(group=GROUPS, softmax=[False, True]),
    # T, B, X, N, W, C: one row and one number, whole blocks of rows and vectors, one more
    sizes=[(4, 1, 2, 3, 1, 15), (4, 8, 2, 16, 16, 16), (4, 9, 2, 17, 4, 17), (4, 17, 1, 4, 5, 33)],
    large=[((7, 19, 2, 150, 20, 5), {"softmax": softmax}) for softmax in (False, True)],
    random=choices(
        *([1, 2, 3, 5, 9, 20], [1, 2, 7, 8, 9, 17], [1, 2, 7]),
        *([1, 3, 4, 8, 15, 17, 33], [1, 2, 3, 4, 5, 8, 20], [1, 2, 5, 17, 40]),
        group=GROUPS,
        forget=[0.0, 0.1, 0.5, 0.9, 1.0],
        **dict.fromkeys(("softmax", "normalizes", "read_first", "bias", "opened", "masked", "begun"), FLAG),
    ),
    few=12,
    stride=2,
    apart=0,
    small=(9, 19, 2, 5, 4, 3),
    tiny=(3, 2, 1, 2, 2, 2),
    states=MemoryState._fields,
    inputs=["x"],
    exact=1e-10,
    single=1e-3,
    worst=1000,  # weights are inverse squares of distances, which may be small
    is_smooth=lambda kind: kind["group"] != "rotation",
    loops=True,
)


def small(dtype: torch.dtype = torch.float64, **options: Any) -> LANTMCell:
    torch.manual_seed(0)
    return LANTMCell(3, 5, **{"width": 4, "capacity": 4, "forget": 2, "write_gate_bias": 0.0, **options}).to(dtype)


@for_each("softmax", [False, True])
def test_extreme_values_stay_finite(softmax: bool) -> None:
    """Strengths of zero, steps of zero, keys far away or exactly on each other, and both ends of the temperature."""
    for dtype in (torch.float32, torch.float64):
        for value in (0.0, -300.0, 300.0):
            case = CONTRACT.case((6, 3, 3, 5, 4, 4), {"softmax": softmax, "masked": False, "begun": False})
            case.tensors["x"].fill_(1.0)
            case.tensors["head_weight"].zero_()
            case.tensors["head_bias"].fill_(value)
            found = case.results(dtype=dtype)
            assert all(tensor.isfinite().all() for tensor in found.values()), value


@for_each("backend", ["reference", "fused"])
def test_a_write_to_a_full_memory_that_forgets_nothing_is_an_error(backend: str) -> None:
    model = Recurrent(lambda _: small(capacity=4, forget=0), 1, backend=backend)
    inputs = torch.randn(6, 2, 3, dtype=torch.float64)
    write = torch.arange(6).unsqueeze(1) < torch.tensor([4, 3])
    model(MaskedInputs(inputs, write))
    starts = torch.zeros(6, 2, dtype=torch.bool)
    starts[3] = True
    model(inputs, starts=starts)
    with pytest.raises(OptionError, match=r"^capacity=4: is less than the vectors that are written; set a larger one"):
        model(inputs)


def test_a_count_beyond_the_capacity_does_not_read_beyond_the_memory() -> None:
    case = CONTRACT.case((3, 2, 3, 5, 4, 4), {})
    found = []
    for count in ([10**12, -(10**12)], [4, 0]):
        case.options["count"] = torch.tensor(count)
        found.append(case.values()[0])
    torch.testing.assert_close(*found)


def test_a_cell_without_a_fused_path_gives_the_reason() -> None:
    reasons = {
        "controller: only an LSTMCell has a fused path within LANTMCell, not GRUCell": {"controller": GRUCell},
        "controller: layer_norm has no fused path within LANTMCell": {
            "controller": functools.partial(LSTMCell, layer_norm=True)
        },
        "controller: zoneout has no fused path within LANTMCell": {
            "controller": functools.partial(LSTMCell, zoneout=0.1)
        },
        "there are no kernels for group=hyperbolic": {"group": "hyperbolic"},
    }
    for reason, options in reasons.items():
        assert small(**options).fused_unsupported_reason() == reason
    assert small(torch.bfloat16).fused_unsupported_reason() == "there are no kernels for torch.bfloat16 on cpu"
    assert small().fused_unsupported_reason(starts=True) is None
