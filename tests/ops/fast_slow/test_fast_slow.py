"""`gyral.ops.fast_slow`, and the cell that runs on it; test_contract.py has what every operator keeps."""

import ctypes
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rum import RUMCell
from gyral.cells.urnn import URNNCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from gyral.ops import fast_slow
from gyral.ops.fast_slow import SubCell
from gyral.ops.native import library
from gyral.ops.operator import KernelUnavailableError, Operator
from tests.helpers.kernels import look_again, skip_without
from tests.helpers.loops import for_each
from tests.ops.contract import FLAG, Contract, Named, choices, each
from tests.ops.gated import test_gated
from tests.ops.rum import test_rum

compiled = skip_without(fast_slow.OPERATOR)

GATED = ("lstm", "normalized_lstm", "modrelu", "complex_modrelu", "goru", "normalized_goru")
RUMS: dict[str, Named] = {
    "rum": {},
    "normalized_rum": {"layer_norm": True, "eta": 1.0, "activation": "tanh"},
    "rum_without_gate": {"update_gate": False, "activation": "tanh"},
}
SUBCELLS = (*GATED, *RUMS)
WEIGHTS = ("w_ih", "b", "w_hh", "extra")


def drawn_subcell(kind: str, sizes: tuple[int, int, int, int], noise: Named, scale: float) -> tuple[Named, Named]:
    """Return the tensors of a subcell with a gradient, with the state before the first step, and its options."""
    if kind in RUMS:
        tensors, options = test_rum.drawn(*sizes, keep=noise["keep"], **RUMS[kind])
        tensors["extra"] = tensors.pop("norms")
        tensors["w_hh"] *= scale
        return tensors, {"kind": "rum", **options}
    tensors, options = test_gated.drawn(*sizes, kind=kind, scale=scale, fresh=False, bias_hh=False, **noise)
    del options["partner"]
    return tensors, options


def drawn(
    *sizes: int,
    fast: str,
    slow: str,
    later: str | None = None,
    num_fast: int = 3,
    masked: bool = True,
    bias: bool = True,
    scale: float = 1.0,
    noise: Named | None = None,
) -> tuple[Named, Named]:
    steps, batch, inputs, hidden, slow_size = sizes
    noise = {"bias": bias, **(noise or {"keep": "mask", "keep_cell_state": "mask", "drop": True})}
    widths = [(2 if kind == "complex_modrelu" else 1) * size for kind, size in ((fast, hidden), (slow, slow_size))]
    read = [inputs, widths[0], widths[1], *[0] * (num_fast - 2)]
    tensors: Named = {"x": torch.randn(steps, batch, inputs, dtype=torch.float64)}
    subcells: list[Named] = []
    for index, width in enumerate(read):
        kind, size, state = (slow, slow_size, "slow") if index == 1 else (fast, hidden, "fast")
        kind = later if index > 1 and later is not None else kind  # with other temporaries than the first fast cell
        own, options = drawn_subcell(kind, (steps, batch, width, size), noise, scale)
        tensors |= {f"{index} {name}": own.get(name) for name in WEIGHTS}
        tensors |= {f"{state} hidden": own["h0"], f"{state} cell state": own.get("c0")}
        subcells.append(options)
    factors = [(torch.rand(steps, batch, width) < 0.7).double() / 0.7 if width and masked else None for width in read]
    of_subcells = {f"{index} {name}": value for index, own in enumerate(subcells) for name, value in own.items()}
    return tensors, of_subcells | {f"{index} factors": value for index, value in enumerate(factors)}


def run(x: Tensor, lengths: Tensor | None, starts: Tensor | None, **given: Any) -> Any:
    subcells: list[Named] = [{} for _ in range(sum(name.endswith(" kind") for name in given))]
    for name, value in given.items():
        place, _, field = name.partition(" ")
        if place.isdigit():
            subcells[int(place)][field] = value
    masks = [own.pop("factors") for own in subcells]
    states = [(given[f"{name} hidden"], given.get(f"{name} cell state")) for name in ("fast", "slow")]
    made = [SubCell(**{"b": None, "extra": None, **own}) for own in subcells]
    return fast_slow.fast_slow(x, made, *states, masks, lengths=lengths, starts=starts)


CONTRACT = Contract(
    run=run,
    draw=drawn,
    kinds=[
        {"fast": "normalized_lstm", "slow": "normalized_rum"},
        {"fast": "lstm", "slow": "complex_modrelu"},
        {"fast": "rum_without_gate", "slow": "lstm", "later": "normalized_rum"},
        {"fast": "goru", "slow": "normalized_goru"},
    ],
    # T, B, X, H, slow size: edges of the blocks of rows and of the vectors
    sizes=[(3, 1, 2, 2, 17), (3, 7, 5, 17, 2), (3, 8, 2, 3, 16), (3, 9, 1, 16, 3)],
    large=[
        ((3, 17, 2, 100, 90), {"fast": "lstm", "slow": slow, "scale": 0.5})
        for slow in ("lstm", "rum", "modrelu", "goru")
    ],
    random=choices(
        *([1, 2, 3, 5], [0, 1, 2, 7, 8, 9, 17], [1, 2, 5, 11]),
        *([2, 3, 4, 7, 8, 9, 15, 16, 17, 33], [2, 3, 5, 8, 16, 17, 31]),
        fast=SUBCELLS,
        slow=SUBCELLS,
        num_fast=[2, 2, 3, 4],
        noise=each(keep=test_gated.ZONEOUT, keep_cell_state=test_gated.ZONEOUT, drop=FLAG),
        **dict.fromkeys(("masked", "bias"), FLAG),
    ),
    few=16,
    stride=2,
    apart=0,
    small=(7, 19, 3, 13, 5),
    tiny=(2, 2, 2, 3, 2),
    states=["fast hidden", "fast cell state", "slow hidden", "slow cell state"],
    inputs=["x"],
    exact=1e-10,
    single=1e-3,
    loops=True,
)


# ---------------------------------------------------------------- the cell


NORMALIZED_RUM = partial(RUMCell, layer_norm=True)


def small(slow: Any = NORMALIZED_RUM, dtype: torch.dtype = torch.float32) -> FSRNNCell:
    return FSRNNCell(3, 5, partial(LSTMCell, layer_norm=True), slow, slow_size=4, num_fast=3).to(dtype)


@for_each("dtype", [torch.float32, torch.float64])
@for_each("slow", [LSTMCell, RUMCell, GORUCell])
def test_zeros_stay_finite_under_layer_normalization(slow: Any, dtype: torch.dtype) -> None:
    cell = small(partial(slow, layer_norm=True), dtype)
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            if "weight_ih" in name or "weight_hh" in name or "bias_" in name or name.endswith("slow.bias"):
                parameter.zero_()
    inputs = torch.zeros(6, 4, 3, dtype=dtype, requires_grad=True)
    outputs, _ = Recurrent(lambda _: cell, 3, backend="fused")(inputs)
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert all(leaf.grad.isfinite().all() for leaf in (inputs, *cell.parameters()))


def test_a_state_that_does_not_fit_never_reaches_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would read and write beyond its end."""
    cell = small(LSTMCell)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    reached: list[Any] = []
    monkeypatch.setattr(Operator, "_run_kernels", lambda self, given: reached.append(given))
    for change in (
        lambda leaf: leaf[:1],
        lambda leaf: leaf[:, :2],
        lambda leaf: torch.cat((leaf, leaf)),
        Tensor.double,
    ):
        with pytest.raises((ValueError, TypeError)):
            model(torch.randn(6, 4, 3), (tree_map(change, cell.init_state(4)),))
    assert reached == []


def test_the_angles_of_a_slow_rum_are_recorded() -> None:
    cell = small(dtype=torch.float64)
    inputs = torch.randn(6, 4, 3, dtype=torch.float64)
    found = []
    for backend in ("reference", "fused"):
        with cell.slow.record_cosines() as cosines, torch.no_grad():
            Recurrent(lambda _: cell, 3, backend=backend)(inputs)
        found.append(torch.stack(cosines))
    assert found[0].shape == (6, 4)
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
    lengths = torch.tensor([6, 1, 3, 6])
    with cell.slow.record_cosines() as cosines, torch.no_grad():
        Recurrent(lambda _: cell, 3, backend="fused")(inputs, lengths=lengths)
    ended = torch.arange(6).unsqueeze(1) >= lengths
    torch.testing.assert_close(torch.stack(cosines), found[0].masked_fill(ended, torch.nan), equal_nan=True)


def test_without_a_compiler_the_reference_runs_and_logs_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(source: Path) -> ctypes.CDLL:
        raise KernelUnavailableError(f"no compiler for {source.name}")

    monkeypatch.setattr(library, "load", load)
    look_again(monkeypatch)
    with caplog.at_level(logging.INFO, "gyral"):
        model = Recurrent(lambda _: small(), 3)
        assert model.backend == "reference"
    assert "no compiler for gated.cpp" in caplog.records[0].getMessage()
    assert model(torch.randn(4, 2, 3))[0].isfinite().all()
    with pytest.raises(OptionError, match=r"^backend=fused: fast: no compiler for gated\.cpp; allowed here: .*$"):
        Recurrent(lambda _: small(), 3, backend="fused")


def test_a_cell_without_kernels_is_named() -> None:
    lstm = partial(LSTMCell, layer_norm=True)
    refused = {
        "slow: RUM with λ = 1 has no fused path within another cell; λ = 0 has one": (
            lstm,
            partial(RUMCell, lambd=1.0),
        ),
        "slow: recurrent_dropout has no fused path": (lstm, partial(RUMCell, recurrent_dropout=0.1)),
        "fast: GRUCell has no fused path within another cell": (GRUCell, lstm),
        "slow: learned_initial_state has no fused path within another cell": (
            LSTMCell,
            partial(URNNCell, learned_initial_state=True),
        ),
    }
    for reason, (fast, slow) in refused.items():
        cell = FSRNNCell(3, 5, fast, slow)
        assert cell.fused_unsupported_reason() == reason
        assert Recurrent(lambda _, cell=cell: cell, 3).backend == "reference"
    later = iter([LSTMCell, GRUCell])
    cell = FSRNNCell(3, 5, lambda *given, **options: next(later)(*given, **options), LSTMCell)
    assert cell.fused_unsupported_reason() == "fast: GRUCell has no fused path within another cell"
    assert small(LSTMCell).fused_unsupported_reason() is None
    in_half = small(LSTMCell, torch.bfloat16).fused_unsupported_reason()
    assert in_half == "fast: there are no kernels for torch.bfloat16 on cpu"
