"""`gyral.ops.gated`, and the cells that run on it; test_contract.py has what every operator keeps."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gyral.cells.eurnn import EURNNCell
from gyral.cells.full_urnn import FullURNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.cells.rnn import RNNCell
from gyral.cells.urnn import URNNCell
from gyral.cells.weinet import WeiNetCell
from gyral.nn.recurrent import Recurrent
from gyral.ops import unitary
from gyral.ops.gated import KINDS, OPERATOR, gated
from gyral.ops.operator import Operator
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.ops.contract import FLAG, Contract, Named, assert_close, choices, derivatives

compiled = skip_without(OPERATOR)

# the two kinds of modReLU with a matrix of layers of rotations
LAYERS = {"modrelu_layers": "modrelu", "complex_modrelu_layers": "complex_modrelu"}
ALL_KINDS = (*KINDS, *LAYERS)
GATES = {"modrelu": 1, "rnn_tanh": 1, "rnn_relu": 1, "complex_modrelu": 2, "goru": 3, "normalized_goru": 3, "gru": 3}
ZONEOUT = ("none", "mean", "mask")


def drawn(
    *sizes: int,
    kind: str,
    chunk: int = 2,
    layers: int = 3,
    bias: bool = True,
    bias_hh: bool = True,
    extra: bool = True,
    fresh: bool = True,
    keep: str = "mask",
    keep_cell_state: str = "mask",
    drop: bool = True,
    epsilon: float = 1e-5,
    scale: float = 1.0,
) -> tuple[Named, Named]:
    """Return all arguments that the kind has."""
    steps, batch, inputs, units = sizes

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    def zoneout(which: str, *shape: int) -> Tensor | None:
        mask = (torch.rand(shape) < 0.3).double()
        return {"none": None, "mean": torch.tensor(0.3, dtype=torch.float64), "mask": mask}[which]

    own = LAYERS.get(kind, kind)
    if own == "on_lstm" or kind in LAYERS:  # which have two units at least
        units = max(2, units)
    chunk = min(chunk, max(1, units - 1))
    hidden, has_cell_state = (2 if own == "complex_modrelu" else 1) * units, "lstm" in own
    width = GATES.get(own, 4) * units + (2 * -(-units // chunk) if own == "on_lstm" else 0)
    sizes = {"normalized_lstm": 10, "normalized_goru": 5, "modrelu": 1, "complex_modrelu": 1, "goru": 1}
    has_bias_hh = bias and bias_hh and own in ("gru", "lstm", "rnn_tanh", "rnn_relu")
    count = sizes.get(own, 1 if own == "gru" and extra and not has_bias_hh else 0)
    weight, partner = scale * draw(width, hidden) / hidden, None
    if kind in LAYERS:
        partner = unitary.tunable_pairing(units, layers).partner
        weight = scale * draw(2, len(partner), hidden)
    tensors = {
        "x": draw(steps, batch, inputs),
        "w_ih": draw(width, inputs),
        "b": draw(width) if bias else None,
        "b_hh": draw(width) if has_bias_hh else None,
        "w_hh": weight,
        "extra": draw(count * units) if count else None,
        "h0": draw(batch, hidden),
        "c0": draw(batch, units) if has_cell_state else None,
        "fresh": draw(hidden) if fresh else None,
    }
    options = {
        "kind": own,
        "keep": zoneout(keep, steps, batch, hidden),
        "keep_cell_state": zoneout(keep_cell_state, steps, batch, units)
        if has_cell_state and own != "on_lstm"
        else None,
        "drop": (torch.rand(batch, hidden) < 0.7).double() if drop else None,
        "partner": partner,
        "units": units,
        "chunk": chunk if own == "on_lstm" else 1,
        "epsilon": epsilon,
    }
    return tensors, options


def run(b: Tensor | None = None, extra: Tensor | None = None, **given: Any) -> tuple[Tensor, ...]:
    return gated(b=b, extra=extra, **given)


LARGE = {"modrelu": 257, "goru": 150, "normalized_goru": 150, "gru": 150, "rnn_tanh": 257, "rnn_relu": 257}

CONTRACT = Contract(
    run=run,
    draw=drawn,
    kinds=[{"kind": kind} for kind in ALL_KINDS],
    # T, B, X, N: sizes that miss and cross the vectors of every instruction set, batches around a block of 8 rows
    sizes=[(3, 9, 2, 1), (1, 1, 2, 17), (3, 8, 2, 17), (3, 17, 2, 16), (3, 7, 1, 3)],
    others=[
        ((3, 9, 2, size), {"kind": "on_lstm", "chunk": chunk}) for size in (2, 3, 7, 10) for chunk in range(1, size)
    ],
    large=[((3, 17, 2, LARGE.get(kind, 130)), {"kind": kind, "scale": 0.5}) for kind in ALL_KINDS],
    random=choices(
        *([1, 2, 3, 5, 9], [0, 1, 2, 7, 8, 9, 16, 17], [1, 2, 5, 11], [2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33]),
        kind=ALL_KINDS,
        chunk=range(1, 20),
        layers=[1, 2, 3, 4],
        epsilon=[1e-5, 1e-2],
        **dict.fromkeys(("keep", "keep_cell_state"), ZONEOUT),
        **dict.fromkeys(("bias", "bias_hh", "extra", "fresh", "drop"), FLAG),
    ),
    few=24,
    stride=2,
    apart=2,
    many=6000,
    small=(7, 19, 3, 13),
    tiny=(2, 2, 2, 3),
    states=["h0", "c0"],
    inputs=["x"],
    exact=1e-10,
    single=1e-3,
    loops=True,
)


# ---------------------------------------------------------------- the operator


def test_tensors_that_depend_on_each_other_have_second_derivatives() -> None:
    """The arguments of a sequence may be functions of each other, or the same tensor."""
    case = CONTRACT.case((3, 2, 2, 3), {"kind": "rnn_tanh"})
    weight = case.tensors["w_hh"].requires_grad_()
    found = []
    for function in (run, CONTRACT.plain):
        values = case.values(
            function, {**case.tensors, "w_hh": weight.sin(), "w_ih": weight.sin()[:, :2], "h0": weight[:2]}
        )
        (gradient,) = derivatives(values, [weight], create_graph=True)
        (second,) = derivatives([gradient], [weight])
        found.append({"first": gradient, "second": second})
    assert_close(*found, 1e-9)


def test_a_nan_with_a_payload_stays_one() -> None:
    """Whatever the low bits of a NaN hold, as other programs may write them there."""
    inputs = torch.randn(2, 1, 3)
    inputs.view(torch.int32)[0, 0, 0] = 0x7FC00001
    outputs, _ = Recurrent(lambda _: ONLSTMCell(3, 5, chunk_size=2), 3, backend="fused")(inputs)
    assert outputs.isnan().all()


# ---------------------------------------------------------------- the cells

NOTHING = 1e-12  # of recurrent_dropout: an option that torch's layer has not, without an effect
CELLS = {
    "on_lstm": functools.partial(ONLSTMCell, chunk_size=2),
    "lstm": functools.partial(LSTMCell, recurrent_dropout=NOTHING),
    "normalized_lstm": functools.partial(LSTMCell, layer_norm=True),
    "gru": functools.partial(GRUCell, recurrent_dropout=NOTHING),
    "rnn": functools.partial(RNNCell, recurrent_dropout=NOTHING),
    "eurnn": functools.partial(EURNNCell, capacity=2),
    "goru": functools.partial(GORUCell, capacity=2, layer_norm=True),
    "urnn": URNNCell,
    "full_urnn": FullURNNCell,
}
every_cell = for_each("cell", CELLS)


@every_cell
def test_cells_whose_state_does_not_fit_never_reach_the_kernels(monkeypatch: pytest.MonkeyPatch, cell: str) -> None:
    """They would read and write beyond its end."""
    made = CELLS[cell](3, 5)
    model = Recurrent(lambda _: made, 3, backend="fused")
    reached: list[Any] = []
    monkeypatch.setattr(Operator, "_run_kernels", lambda self, given: reached.append(given))
    for change in (
        lambda leaf: leaf[:1],
        lambda leaf: torch.cat((leaf, leaf)),
        lambda leaf: leaf[:, :2],
        lambda leaf: torch.cat((leaf, leaf), dim=1),
        Tensor.double,
    ):
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            model(torch.randn(6, 4, 3), (tree_map(change, made.init_state(4)),))
    assert reached == [], "states of another shape or type than (4, H) and that of the parameters"


@for_each("option", [{"recurrent_dropout": 0.1}, {"layer_norm": True}])
def test_options_without_kernels_are_named(option: Named) -> None:
    assert next(iter(option)) in str(ONLSTMCell(3, 5, chunk_size=2, **option).fused_unsupported_reason())


@for_each("cell_class", [URNNCell, FullURNNCell])
@for_each("resets", [0.0, 0.3, 1.0])
def test_a_learned_initial_state_gets_the_gradient_of_the_resets(cell_class: Any, resets: float) -> None:
    cell = cell_class(3, 5, learned_initial_state=True, zoneout=0.2).double()
    compare_backends(cell, torch.arange(11) % 6 + 1, torch.rand(6, 11) < resets)


@for_each("cell_class", [*(functools.partial(cell, layer_norm=True) for cell in (LSTMCell, GORUCell)), WeiNetCell])
def test_the_epsilon_of_layer_normalization(cell_class: Any) -> None:
    found = []
    for epsilon in (1e-5, 0.1):
        torch.manual_seed(1)
        found.append(compare_backends(cell_class(3, 6, layer_norm_eps=epsilon).double()))
    assert not torch.allclose(*found)


def compare_backends(cell: Any, *masks: Tensor) -> Tensor:
    """Compare the fused path with the loop over the step; return the outputs."""
    found, inputs = [], torch.randn(6, 11, 3, generator=torch.Generator().manual_seed(1)).double()
    for backend in ("reference", "fused"):
        torch.manual_seed(2)  # of the masks of zoneout
        outputs, _ = Recurrent(lambda _: cell, 3, backend=backend)(inputs, None, *masks)
        gradients = torch.autograd.grad(outputs.sin().sum(), list(cell.parameters()))
        found.append(dict(zip(("outputs", *dict(cell.named_parameters())), (outputs, *gradients), strict=True)))
    assert_close(found[1], found[0], 1e-9)
    return found[1]["outputs"]


def test_an_empty_batch_on_the_layer_of_torch() -> None:
    model = Recurrent(lambda width: LSTMCell(width, 4), 3, backend="fused")
    outputs, _ = model(torch.randn(5, 0, 3))
    assert outputs.shape == (5, 0, 4)
    outputs.sum().backward()
    assert all((parameter.grad == 0).all() for parameter in model.parameters())
