"""The Triton kernels of block scans against plain torch in float64: on a GPU, else under the interpreter."""

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")


from gyral.cells.slice import SLiCECell
from gyral.ops.block_scan import block_scan
from gyral.ops.block_scan.triton import kernels, launch
from tests.helpers.triton import DEVICE, MASKS, ON_GPU, KernelCase, check_cell, kernels_of, launches_of

TOLERANCE = 1e-5 if ON_GPU else 2e-6
# T, B, N, b: a single number, one step, whole blocks, a block that is not full, blocks of one unit, one block, and
# a block with more places than units
SIZES = [(1, 1, 1, 1), (1, 2, 4, 2), (11, 2, 6, 2), (7, 2, 7, 4), (5, 1, 5, 1), (6, 2, 5, 5), (4, 1, 3, 8)]
NAMES = ("change", "values", "h0")


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not ON_GPU:
        monkeypatch.setattr(launch, "MOST_AHEAD", 2)
    with kernels_of(block_scan):
        yield


class Case(KernelCase):
    """Arguments: tensors with a gradient, in float64 with values of float32, and others."""

    operator, tolerance = block_scan, TOLERANCE

    def __init__(self, steps: int, batch: int, size: int, block: int, *, masks: str = "none") -> None:
        shapes = (steps, batch, size, block), (steps if MASKS[masks][1] else 1, batch, size), (batch, size)
        tensors = {name: torch.randn(shape) for name, shape in zip(NAMES, shapes, strict=True)}
        tensors["change"] /= 2
        super().__init__(tensors, {"fresh": torch.arange(batch) % 2}, steps, batch, masks)


@pytest.mark.named("*(1, 2*lengths*", "*(11, *both*", "*(7, *both*", "*(6, *none*", "*(4, *starts*")
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_kernels_equal_plain_torch(sizes: tuple[int, ...], masks: str) -> None:
    case = Case(*sizes, masks=masks)
    found = case.check()
    if MASKS[masks][0]:
        beyond = case.beyond
        assert not any(found[name][beyond].any() for name in ("outputs", "change"))
        assert not MASKS[masks][1] or not found["values"][beyond].any()


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(20, 1, 50, 4), (9, 1, 33, 16), (5, 1, 70, 64)], ids=str)
def test_sizes_of_a_gpu(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MOST_AHEAD", 8)
    Case(*sizes, masks="both").check()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_nothing_before_a_first_step_or_beyond_the_end_is_read() -> None:
    case = Case(6, 2, 5, 4, masks="both")
    case.others["starts"].zero_()[3], case.others["fresh"] = True, torch.zeros(2, dtype=torch.int64, device=DEVICE)
    case.others["lengths"][:] = 5
    expected = case.by_kernels()
    case.tensors["h0"][0] = torch.nan
    case.tensors["change"][3] = case.tensors["change"][5:] = torch.nan
    case.tensors["change"][4, :, 4:, 1:] = torch.nan  # columns of units that do not exist
    case.tensors["values"][:3] = case.tensors["values"][4:] = torch.nan
    found = case.by_kernels()
    assert torch.equal(found["outputs"][3:], expected["outputs"][3:])
    assert torch.equal(found["outputs"][:, 1], expected["outputs"][:, 1])
    assert torch.equal(found["final"], expected["final"])
    assert torch.equal(found["change"][3:], expected["change"][3:])
    assert torch.equal(found["values"], expected["values"])


def test_no_rows() -> None:
    assert not any(tensor.any() for tensor in Case(3, 0, 4, 2).by_kernels().values())


def test_each_result_may_be_differentiated_alone() -> None:
    case = Case(3, 2, 3, 2)
    given = case.arguments()
    results, _ = launch.forward(given)
    for index in range(2):
        gradients = [each.cos() if place == index else None for place, each in enumerate(results)]
        zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
        found, expected = (launch.backward(given, results, [], by, {}) for by in (gradients, zeros))
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_one_launch_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = launches_of(monkeypatch, launch)
    Case(2, 1, 2, 2).by_kernels()
    assert launched == [kernels.forward_blocks, kernels.backward_blocks]


@pytest.mark.parametrize("masked", [False, True])
def test_the_cell_equals_its_loop(masked: bool) -> None:
    check_cell(SLiCECell(4, 5, block_size=2), masked)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
def test_the_same_bits_again() -> None:
    case = Case(300, 40, 250, 64, masks="both")
    case.tensors["change"] /= 64
    case.check()
    case.check_repeats()
