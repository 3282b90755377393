"""Fast-slow networks by the Triton kernels of their subcells against plain torch: on a GPU, else interpreted."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor
from torch.utils._pytree import tree_map_only

from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rum import RUMCell
from gyral.nn.recurrent import Recurrent
from gyral.ops.compilation import start
from gyral.ops.fast_slow import OPERATOR
from gyral.ops.gated.triton import steps as gated_steps
from gyral.ops.operator import KernelUnavailableError
from tests.helpers.triton import DEVICE, ON_GPU, kernels_of
from tests.ops.contract import Case, Named, error
from tests.ops.fast_slow.test_fast_slow import CONTRACT, GATED, SUBCELLS

# of the float32 loop, the error may be several times as large: a gradient through many normalizations amplifies it
TOLERANCE, FACTOR = (1e-5 if ON_GPU else 2e-6), 10
ZONEOUT = ("none", "mask", "mean")


@pytest.fixture(autouse=True)
def triton_kernels() -> Iterator[None]:
    with kernels_of(OPERATOR):
        yield


def run(**given: Any) -> Any:
    """Run the kernels on their device, and return the results on the CPU."""
    on_device = {
        name: value.to(DEVICE) if isinstance(value, Tensor) and value.dim() > 0 else value
        for name, value in given.items()
    }
    return tree_map_only(Tensor, Tensor.cpu, CONTRACT.run(**on_device))


def make(*sizes: int, ragged: bool = True, resets: bool = True, seed: int = 0, **kind: Any) -> Case:
    """Return a case whose numbers are those of float32."""
    case = CONTRACT.case(sizes, kind, ragged, resets, seed)
    case.tensors = {name: tensor.float().double() for name, tensor in case.tensors.items()}
    return case


def test_no_rows() -> None:
    found = make(2, 0, 3, 4, 5, fast="lstm", slow="rum").results(run, torch.float32)
    assert found["result 0"].shape == (2, 0, 4)


def check(case: Case) -> None:
    """Compare the kernels with plain torch."""
    found, expected = case.results(run, torch.float32), case.results(CONTRACT.plain)
    plain = case.results(CONTRACT.plain, torch.float32)
    usual = max(error(plain[name], tensor) for name, tensor in expected.items())
    for name, tensor in expected.items():
        size = error(found[name], tensor)
        assert size <= max(TOLERANCE, FACTOR * usual), f"{case}: {name}: {size:.1e}, that of the loop is {usual:.1e}"
    if case.options["lengths"] is not None:
        assert not found["result 0"][case.beyond].any()
        assert not found["gradient of x"][case.beyond].any()


def noise(index: int) -> Named:
    """Return zoneout and recurrent dropout, with every option for some numbers."""
    return {"keep": ZONEOUT[index % 3], "keep_cell_state": ZONEOUT[index // 2 % 3], "drop": index % 4 < 2}


CASES: list[Named] = [
    {"fast": "lstm", "slow": "goru", "num_fast": 2, "masked": True, "noise": noise(1)},
    {"fast": "goru", "slow": "lstm", "num_fast": 3, "masked": False, "bias": False, "noise": noise(5)},
    {"fast": "lstm", "slow": "normalized_rum", "num_fast": 2, "masked": True, "noise": noise(2)},
]


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: f"{kind['fast']}-{kind['slow']}")
def test_kernels_equal_plain_torch(kind: Named) -> None:
    check(make(3, 2, 2, 3, 4, **kind))


@pytest.mark.slow
@pytest.mark.parametrize("slow", SUBCELLS)
@pytest.mark.parametrize("fast", GATED)
def test_options_crossed(fast: str, slow: str) -> None:
    index = GATED.index(fast) * len(SUBCELLS) + SUBCELLS.index(slow)
    options = {"num_fast": 2 + index % 3, "masked": index % 2 == 0, "bias": index % 3 > 0, "noise": noise(index)}
    masks = {"ragged": index % 4 > 0, "resets": index % 5 > 0}
    check(make(3, 2, 2, 3 + index % 3, 4, seed=index, fast=fast, slow=slow, **masks, **options))


def test_a_layer_equals_the_reference() -> None:
    lstm = partial(LSTMCell, layer_norm=True)
    cell = FSRNNCell(2, 3, lstm, RUMCell, slow_size=4).to(DEVICE)
    inputs, lengths = torch.randn(3, 2, 2, device=DEVICE), torch.tensor([3, 2])
    starts = (torch.rand(3, 2) < 0.3).to(DEVICE)
    found = []
    for backend in ("fused", "reference"):
        layer, leaf = Recurrent(lambda _: cell, 2, backend=backend), inputs.clone().requires_grad_()
        outputs, (final,) = layer(leaf, None, lengths, starts)
        states = [tensor for own in final for tensor in own]
        loss = sum(tensor.cos().sum() for tensor in (outputs, *states))
        found.append([outputs, *states, *torch.autograd.grad(loss, [leaf, *cell.parameters()])])
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= 1e-5 * max(1.0, other.norm())


def test_a_kernel_and_at_most_two_products_for_each_step_of_a_subcell(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []

    def count(kernel: Any, *given: Any, **options: Any) -> None:
        launched.append(kernel.__name__)
        start(kernel, *given, **options)

    monkeypatch.setattr(gated_steps, "start", count)
    for name in ("mm", "addmm"):
        function = getattr(torch, name)
        monkeypatch.setattr(
            torch, name, lambda *given, f=function, **options: (launched.append("mm"), f(*given, **options))[1]
        )
    add = Tensor.addmm_
    monkeypatch.setattr(Tensor, "addmm_", lambda *given: (launched.append("mm"), add(*given))[1])
    few, more = [], []
    for steps, found in ((2, few), (3, more)):
        launched.clear()
        case = make(steps, 1, 2, 2, 2, fast="lstm", slow="lstm", num_fast=2, masked=False, ragged=False, resets=False)
        case.results(run, torch.float32)
        found.extend(launched)
    assert len(more) - len(few) == 2 * (2 + 3 + 3)  # forward and backward; the first subcell reads its inputs at once


def test_rum_runs_as_a_slow_subcell_alone() -> None:
    cell = FSRNNCell(2, 3, RUMCell, LSTMCell)
    assert cell.fused_unsupported_reason() is None  # on a CPU
    reason = cell.to("meta").fused_unsupported_reason()
    assert reason is not None
    with pytest.raises(KernelUnavailableError, match=r"^the kernels for a GPU run RUM as a slow subcell alone$"):
        make(1, 1, 2, 2, 2, fast="rum", slow="lstm").results(run, torch.float32)
