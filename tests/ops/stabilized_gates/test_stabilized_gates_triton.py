"""The Triton kernels of mLSTM's gates against plain torch in float64: on a GPU, else under Triton's interpreter."""

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import triton.language as tl
from torch import Tensor

from gyral.ops.stabilized_gates import NEVER, stabilized_gates
from gyral.ops.stabilized_gates.triton import kernels, launch
from tests.helpers.triton import DEVICE, MASKS, ON_GPU, KernelCase, kernels_of

TOLERANCE = 1e-5 if ON_GPU else 2e-6
NAMES = ("decay", "write", "least", "stabilizers")


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with kernels_of(stabilized_gates):
        if not ON_GPU:
            for module in (kernels, launch):
                monkeypatch.setattr(module, "BLOCK_STEPS", tl.constexpr(16))
        yield


class Case(KernelCase):
    """Arguments, in float64 with values of float32; the first row has no stabilizer before its first step."""

    operator, tolerance = stabilized_gates, TOLERANCE
    names = NAMES

    def __init__(self, steps: int, batch: int, heads: int, masks: str = "none") -> None:
        first = torch.randn(batch, heads)
        first[0] = NEVER
        tensors = {"gates": 4 * torch.randn(steps, batch, 2 * heads), "first": first}
        super().__init__(tensors, {"scale": 0.3}, steps, batch, masks)

    def cotangent(self, result: Tensor) -> Tensor:
        """Return what hides no gradient beside those of large numbers, and is zero where a row has ended."""
        by = super().cotangent(result) / (1 + result.abs())
        if self.others["lengths"] is not None:
            by = by.masked_fill(self.beyond.to(DEVICE).unsqueeze(2), 0.0)
        return by


@pytest.mark.parametrize("masks", MASKS)
def test_kernels_equal_plain_torch(masks: str) -> None:
    Case(35, 3, 2, masks).check()
    Case(1, 1, 1, masks).check()


def test_the_smallest_divisor_does_not_overflow() -> None:
    case = Case(20, 3, 2, "starts")
    case.tensors["gates"][..., :2] -= 100
    case.tolerance = 2e-5  # float32 has steps of 8e-6 at 100
    found = case.check()
    assert found["least"].max().log() == pytest.approx(80)
    assert found["gates"].isfinite().all()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_what_is_no_number_stays_in_its_sequence() -> None:
    case = Case(20, 3, 2, "both")
    starts, lengths = case.others["starts"], case.others["lengths"]
    starts.zero_()[6, 1], lengths[:] = True, 17
    expected = case.by_kernels()
    gates, first = case.tensors["gates"], case.tensors["first"]
    gates[:6, 1], first[1], gates[17:] = torch.nan, torch.nan, torch.nan
    found = case.by_kernels()
    for name in NAMES:
        assert torch.equal(found[name][6:17, 1], expected[name][6:17, 1]), name
        assert torch.equal(found[name][:17, [0, 2]], expected[name][:17, [0, 2]]), name
        assert found[name][1, 1].isnan().all() or name == "decay"
    assert torch.equal(found["gates"][6:], expected["gates"][6:])
    assert torch.equal(found["gates"][:, [0, 2]], expected["gates"][:, [0, 2]])


def test_each_result_may_be_differentiated_alone_and_nothing_is_saved() -> None:
    case = Case(5, 2, 2)
    given = case.arguments()
    results, saved = launch.forward(given)
    assert not saved
    for index in range(4):
        gradients: list[Tensor | None] = [None] * 4
        gradients[index] = results[index].cos()
        zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
        found, expected = (launch.backward(given, results, [], by, {}) for by in (gradients, zeros))
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
def test_the_same_bits_again() -> None:
    case = Case(300, 40, 4, "both")
    case.check()
    case.check_repeats()
