"""The Triton kernels of the short convolution against plain torch in float64: on a GPU, else under the interpreter."""

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import triton.language as tl
from torch import Tensor

from gyral.ops.short_convolution import OPERATOR
from gyral.ops.short_convolution.triton import kernels, launch
from tests.helpers.triton import DEVICE, MASKS, ON_GPU, KernelCase, kernels_of, launches_of

TOLERANCE = 1e-5 if ON_GPU else 2e-6  # a GPU's exponential and division are not rounded correctly
# T, B, K and the sizes of the parts: a single number, fewer steps than a window, several tiles, a long window
SIZES = [(1, 1, 4, 1), (2, 3, 4, 5, 3), (18, 2, 4, 3, 5, 2), (9, 2, 7, 4)]
NAMES = ("values", "weight", "bias", "history")


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with kernels_of(OPERATOR):
        if not ON_GPU:
            set_tiles(monkeypatch, 16)
        yield


def set_tiles(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for module in (kernels, launch):
        for name in ("BLOCK", "BLOCK_STEPS"):
            monkeypatch.setattr(module, name, tl.constexpr(size))


class Case(KernelCase):
    """Arguments: tensors with a gradient, in float64 with values of float32, and others."""

    operator, tolerance = OPERATOR, TOLERANCE

    def __init__(self, steps: int, batch: int, kernel: int, *parts: int, masks: str = "none", bias: bool = True):
        channels = sum(parts)
        shapes = (steps, batch, channels), (channels, kernel), (channels,), (batch, kernel - 1, channels)
        drawn = {name: torch.randn(shape) for name, shape in zip(NAMES, shapes, strict=True)}
        tensors = {name: tensor for name, tensor in drawn.items() if bias or name != "bias"}
        others = {"bias": None, "first": parts[0], "second": (*parts, 0)[1]}
        super().__init__(tensors, others, steps, batch, masks)
        self.names = [f"part {index}" for index in range(len(parts))]


@pytest.mark.named("*(1, *lengths*", "*(2, *none*", "*(18, *starts*", "*(18, *both*", "*(9, *lengths*")
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_kernels_equal_plain_torch(sizes: tuple[int, ...], masks: str) -> None:
    case = Case(*sizes, masks=masks, bias=masks in ("none", "both"))
    found = case.check()
    if MASKS[masks][0]:
        beyond = case.beyond
        assert not any(found[name][beyond].any() for name in found if name.startswith("part") or name == "values")


def test_tiles_of_the_size_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    set_tiles(monkeypatch, 32)
    Case(35, 2, 4, 9, 11, masks="both").check()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_only_a_window_depends_on_what_is_no_number() -> None:
    case = Case(16, 3, 4, 2, 3, masks="both")
    starts, lengths = case.others["starts"], case.others["lengths"]
    starts.zero_()[6, 1], lengths[:] = True, 15
    expected = case.by_kernels()
    case.tensors["history"][1] = case.tensors["values"][:6, 1] = torch.nan  # before the start of the second row
    case.tensors["values"][15:] = torch.inf  # beyond the lengths
    case.tensors["values"][10, 2, 0] = torch.nan  # in the windows of four steps
    found = case.by_kernels()
    assert torch.equal(found["part 1"][6:], expected["part 1"][6:])
    assert torch.equal(found["part 0"][:, 0], expected["part 0"][:, 0])
    assert torch.equal(found["part 0"][6:, 1], expected["part 0"][6:, 1])
    is_spoiled = found["part 0"][:, 2, 0].isnan()
    assert is_spoiled.nonzero().flatten().tolist() == [10, 11, 12, 13]
    assert torch.equal(found["values"][6:, :2], expected["values"][6:, :2])
    assert found["values"][:, 2, 0].isnan().nonzero().flatten().tolist() == [*range(7, 14)]
    assert not found["values"][:, 2, 1:].isnan().any()
    assert not found["history"][2].isnan().any()


def test_no_rows() -> None:
    assert not any(tensor.any() for tensor in Case(3, 0, 4, 2, 2).by_kernels().values())


def test_each_part_may_be_differentiated_alone() -> None:
    case = Case(5, 2, 4, 2, 3, 2)
    given = case.arguments()
    results, _ = launch.forward(given)
    for index in range(3):
        gradients: list[Tensor | None] = [None, None, None]
        gradients[index] = results[index].cos()
        zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
        found, expected = (launch.backward(given, results, [], by, {}) for by in (gradients, zeros))
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_one_launch_each_way_and_nothing_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = launches_of(monkeypatch, launch)
    case = Case(9, 2, 4, 3)
    kept: set[int] = set()
    leaves = {name: each.float().to(DEVICE).requires_grad_() for name, each in case.tensors.items()}
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.add(each.data_ptr()) or each, lambda each: each):
        results = OPERATOR(**case.others | leaves)
    results[0].sum().backward()
    assert launched == [kernels.forward_convolution, kernels.backward_convolution]
    assert kept <= {each.data_ptr() for each in (*leaves.values(), *results)}


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
def test_the_same_bits_again() -> None:
    case = Case(300, 40, 4, 50, 50, 50, masks="both")
    case.check()
    case.check_repeats()
