"""`gyral.ops.slot_memory`, and the cells that run on it; test_contract.py has what every operator keeps."""

import functools
import math
from typing import Any

import torch
from torch import Tensor

from gyral.cells.dnc import DNCCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.ntm import NTMCell
from gyral.nn.recurrent import Recurrent
from gyral.ops.slot_memory import OPERATOR, DNCMemory, NTMMemory, slot_memory
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import made_by
from tests.ops.contract import FLAG, Contract, Named, choices

compiled = skip_without(OPERATOR)


def drawn(
    *sizes: int,
    memory: str,
    controller: str = "lstm",
    bias: bool = True,
    read_heads: int = 2,
    write_heads: int = 2,
    max_shift: int = 1,
    masked: bool = True,
) -> tuple[Named, Named]:
    """Return all arguments, among them states in which no two slots have the same usage."""
    steps, batch, inputs, hidden, slots, width = sizes
    sizes = slots, width, read_heads
    kind = NTMMemory(*sizes, write_heads, max_shift) if memory == "ntm" else DNCMemory(*sizes)
    gates = 4 if controller == "lstm" else 1

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    def state(name: str, batch: int) -> Named:
        own = {f"{name}_hidden": draw(batch, hidden), f"{name}_cell": draw(batch, hidden)} if gates == 4 else {}
        shapes = [(read_heads * width,), *kind.shapes]
        leaves = (torch.rand(batch, *shape, dtype=torch.float64) / shape[-1] for shape in shapes)
        return own | {f"{name}_{index}": leaf for index, leaf in enumerate(leaves)}

    tensors = {
        "x": draw(steps, batch, inputs),
        "w_ih": draw(gates * hidden, inputs + read_heads * width) / math.sqrt(hidden),
        "b": draw(gates * hidden) / math.sqrt(hidden) if bias else None,
        "w_hh": draw(gates * hidden, hidden) / math.sqrt(hidden) if gates == 4 else None,
        "interface_weight": 2 * draw(kind.outputs_size, hidden) / math.sqrt(hidden),
        "interface_bias": draw(kind.outputs_size) / math.sqrt(hidden),
        **state("state", batch),
        **state("fresh", 1),
    }
    return tensors, {
        "memory": kind,
        "controller": controller,
        "write": torch.rand(steps, batch) < 0.6 if masked else None,
    }


def run(b: Tensor | None = None, w_hh: Tensor | None = None, **given: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    state, fresh = (
        tuple(given.pop(key) for key in [key for key in given if key.startswith(name)]) for name in ("state_", "fresh_")
    )
    return slot_memory(b=b, w_hh=w_hh, state=state, fresh=fresh, **given)


CONTROLLERS = ("lstm", "tanh", "relu")
MEMORIES = ("ntm", "dnc")

CONTRACT = Contract(
    run=run,
    draw=drawn,
    kinds=[{"memory": memory, "controller": controller} for controller in CONTROLLERS for memory in MEMORIES],
    # T, B, X, N, C, W: edges of the blocks of rows and of the vectors
    sizes=[(3, 1, 1, 1, 1, 1), (3, 1, 2, 4, 15, 1), (3, 8, 1, 15, 16, 16), (3, 9, 7, 17, 17, 4), (3, 17, 2, 8, 33, 5)],
    others=[  # those of the papers
        ((20, 3, 7, 100, 128, 20), {"memory": "ntm", "read_heads": 1, "write_heads": 1}),
        ((20, 3, 7, 100, 16, 16), {"memory": "dnc", "read_heads": 4}),
    ],
    large=[((7, 19, 2, 150, 8, 20), {"memory": memory}) for memory in MEMORIES],
    random=choices(
        *([1, 2, 3, 5, 9, 20], [1, 2, 7, 8, 9, 17], [1, 2, 7]),
        *([1, 3, 4, 8, 15, 17, 33], [1, 2, 3, 5, 8, 16, 17, 40], [1, 2, 3, 4, 5, 8, 20]),
        memory=MEMORIES,
        controller=CONTROLLERS,
        read_heads=[1, 1, 2, 4],
        write_heads=[1, 1, 2, 3],
        max_shift=[0, 1, 1, 2, 5],
        **dict.fromkeys(("bias", "masked"), FLAG),
    ),
    few=12,
    stride=3,
    apart=0,
    small=(7, 19, 2, 5, 6, 4),
    tiny=(3, 2, 1, 2, 3, 2),
    states=[f"state_{index}" for index in ("hidden", "cell", *range(7))],
    inputs=["x"],
    exact=1e-10,
    single=1e-3,
    is_smooth=lambda kind: kind["controller"] != "relu" and kind["memory"] == "ntm",
    loops=True,
)

every_memory = for_each("memory", MEMORIES)


@every_memory
def test_extreme_values_stay_finite(memory: str) -> None:
    """Gates, strengths and powers at both ends, empty and overflowing memories."""
    for dtype in (torch.float32, torch.float64):
        for value in (0.0, -300.0, 30.0, 300.0):
            case = CONTRACT.case((20, 3, 3, 5, 40, 4), {"memory": memory, "masked": False}, False, False)
            case.tensors["x"].fill_(1.0)
            case.tensors["interface_weight"].zero_()
            case.tensors["interface_bias"].fill_(value)
            found = case.results(dtype=dtype)
            assert all(tensor.isfinite().all() for tensor in found.values()), value


@every_memory
def test_without_a_graph_the_states_of_two_steps_are_kept(memory: str) -> None:
    case = CONTRACT.case((50, 2, 3, 5, 40, 4), {"memory": memory})
    with torch.no_grad():
        made = made_by(case.values)
    assert made < made_by(lambda: case.values(leaves=case.leaves())) / 3


every_cell = for_each("cell_class", (NTMCell, DNCCell))


def small(cell_class: type[NTMCell | DNCCell], dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    torch.manual_seed(0)
    return cell_class(3, 5, **{"slots": 6, "width": 4, "read_heads": 2, **options}).to(dtype)


@every_cell
def test_the_states_before_the_first_step_of_the_cells(cell_class: type) -> None:
    """Slots of equal usage may change places, which neither outputs nor the gradients of parameters see."""
    inputs, starts = torch.randn(30, 3, 3, dtype=torch.float64), torch.zeros(30, 3, dtype=torch.bool)
    starts[11, 1] = True
    found = []
    for backend in ("reference", "fused"):
        model = Recurrent(lambda _: small(cell_class), 1, backend=backend)
        outputs, _ = model(inputs, starts=starts)
        found.append([outputs, *torch.autograd.grad(outputs.sin().sum(), list(model.parameters()))])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@every_cell
def test_a_cell_without_a_fused_path_gives_the_reason(cell_class: type) -> None:
    name = cell_class.__name__
    reasons = {
        f"controller: only LSTMCell and Feedforward have a fused path within {name}, not GRUCell": GRUCell,
        f"controller: layer_norm has no fused path within {name}": functools.partial(LSTMCell, layer_norm=True),
        f"controller: zoneout has no fused path within {name}": functools.partial(LSTMCell, zoneout=0.1),
    }
    for reason, controller in reasons.items():
        cell = small(cell_class, controller=controller)
        assert cell.fused_unsupported_reason() == reason
        assert Recurrent(lambda _, cell=cell: cell, 1).backend == "reference"
    in_half = small(cell_class, torch.bfloat16)
    assert in_half.fused_unsupported_reason() == "there are no kernels for torch.bfloat16 on cpu"
    assert small(cell_class).fused_unsupported_reason(starts=True) is None
