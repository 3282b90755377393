"""The Triton kernels of convolutions against plain torch in float64: on a GPU, else under the interpreter."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")


from gyral.cells.dynamic_conv import DynamicConvCell
from gyral.cells.light_conv import LightConvCell
from gyral.ops.convolution import convolution
from gyral.ops.convolution.triton import kernels, launch
from tests.helpers.triton import MASKS, ON_GPU, KernelCase, check_cell, kernels_of, launches_of

TOLERANCE = 1e-5 if ON_GPU else 2e-6  # a GPU's exponential and division are not rounded correctly
# T, B, N, H, K: a single number, fewer steps than a window, heads of several sizes, several tiles, one head, and as
# many as there are channels
SIZES = [(1, 1, 1, 1, 1), (3, 2, 5, 2, 4), (20, 2, 11, 4, 3), (9, 2, 5, 1, 6), (7, 2, 3, 3, 2)]
KINDS: dict[str, dict[str, Any]] = {
    "constant": {"dynamic": False},
    "softmax": {"dynamic": True},
    "masked": {"dynamic": True, "dropped": True},
    "scores": {"dynamic": True, "softmax": False},
    "centered": {"dynamic": True, "dropped": True, "centered": True},
    "centered constant": {"dynamic": False, "centered": True},
}


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with kernels_of(convolution):
        monkeypatch.setattr(convolution, "supports", None)  # that of a CPU is about its own kernels
        if not ON_GPU:
            monkeypatch.setattr(launch, "NUMBERS", 256)
            monkeypatch.setattr(launch, "MOST_STEPS", 16)
        yield


class Case(KernelCase):
    """Arguments: tensors with a gradient, in float64 with values of float32, and others."""

    operator, tolerance = convolution, TOLERANCE
    names = ("outputs",)
    least = 0.1  # a softmax of one weight has no gradient

    def __init__(
        self,
        steps: int,
        batch: int,
        channels: int,
        heads: int,
        kernel: int,
        *,
        dynamic: bool = True,
        dropped: bool = False,
        softmax: bool = True,
        centered: bool = False,
        past: int | None = None,
        masks: str = "none",
    ) -> None:
        shape = (steps, batch, heads, kernel) if dynamic else (heads, kernel)
        tensors = {"values": torch.randn(steps, batch, channels), "weights": 2 * torch.randn(shape)}
        others: dict[str, Any] = {"history": None, "softmax": softmax}
        if centered:
            others["back"] = kernel // 2
        else:
            tensors["history"] = torch.randn(batch, kernel - 1 if past is None else past, channels)
        others["mask"] = 2 * (torch.rand(shape) < 0.5).double() if dropped else None
        super().__init__(tensors, others, steps, batch, masks)


@pytest.mark.named("*(3, *softmax*lengths*", "*(20, *masked*both*", "*(20, *-constant*both*", "*(7, *d-starts*")
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_kernels_equal_plain_torch(sizes: tuple[int, ...], kind: str, masks: str) -> None:
    case = Case(*sizes, masks=masks, **KINDS[kind])
    found = case.check()
    if MASKS[masks][0]:
        beyond = case.beyond
        assert not found["outputs"][beyond].any()
        assert not found["values"][beyond].any()


@pytest.mark.parametrize("kind", ["constant", "masked"])
def test_heads_of_several_programs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "WIDEST", 4)
    Case(4, 1, 21, 2, 2, masks="both", **KINDS[kind]).check()


@pytest.mark.parametrize("past", [0, 5])
def test_history_of_another_length_than_the_window(past: int) -> None:
    Case(4, 2, 3, 1, 4, past=past).check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(35, 2, 26, 2, 31), (19, 1, 260, 2, 3), (40, 2, 33, 33, 3)], ids=str)
def test_sizes_of_a_gpu(sizes: tuple[int, ...], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "NUMBERS", 512)
    monkeypatch.setattr(launch, "MOST_STEPS", 64)
    Case(*sizes, masks="both", **KINDS[kind]).check()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
@pytest.mark.parametrize("kind", ["constant", "softmax"])
def test_only_a_window_depends_on_what_is_no_number(kind: str) -> None:
    case = Case(9, 3, 5, 2, 3, masks="both", **KINDS[kind])
    starts, lengths = case.others["starts"], case.others["lengths"]
    starts.zero_()[3, 1], lengths[:] = True, 8
    expected = case.by_kernels()
    case.tensors["history"][1] = case.tensors["values"][:3, 1] = torch.nan  # before the start of the second row
    case.tensors["values"][8:] = torch.inf  # beyond the lengths
    case.tensors["values"][4, 2, 0] = torch.nan  # in the windows of three steps
    found = case.by_kernels()
    assert torch.equal(found["outputs"][3:, :2], expected["outputs"][3:, :2])
    assert torch.equal(found["outputs"][:, 0], expected["outputs"][:, 0])
    assert torch.equal(found["outputs"][:, 2, 1:], expected["outputs"][:, 2, 1:])
    assert found["outputs"][:, 2, 0].isnan().nonzero().flatten().tolist() == [4, 5, 6]
    assert torch.equal(found["values"], expected["values"])
    assert torch.equal(found["history"], expected["history"])


def test_no_rows() -> None:
    found = Case(3, 0, 4, 2, 3).by_kernels()
    assert not any(tensor.any() for tensor in found.values())


@pytest.mark.parametrize("kind", ["constant", "masked"])
def test_one_launch_forward_and_two_backward(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = launches_of(monkeypatch, launch)
    Case(5, 2, 3, 1, 2, **KINDS[kind]).by_kernels()
    assert launched == [kernels.forward_convolution, kernels.backward_values, kernels.backward_weights]


@pytest.mark.parametrize("make", [LightConvCell, DynamicConvCell])
def test_cells_equal_their_loop(make: Any) -> None:
    check_cell(make(4, 5, kernel_size=3, heads=2))


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
def test_the_same_bits_again() -> None:
    case = Case(300, 40, 50, 4, 31, masks="both", **KINDS["masked"])
    case.check()
    case.check_repeats()
