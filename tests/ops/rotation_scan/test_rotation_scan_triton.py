"""The Triton kernels of the rotation scan against plain torch in float64: on a GPU, else under Triton's interpreter."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import triton.language as tl

from gyral.ops.diagonal.triton import kernels as scans
from gyral.ops.rotation_scan import naive, rotation_scan
from gyral.ops.rotation_scan.triton import kernels, launch
from tests.helpers.triton import MASKS, ON_GPU, KernelCase, kernels_of

TOLERANCE = 2e-5 if ON_GPU else 3e-6
RESULTS = ("outputs", "final memory", "final hidden")


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not ON_GPU:  # chunks of 4 steps, and tiles of 8
        monkeypatch.setattr(scans, "BLOCK_STEPS", tl.constexpr(8))
        monkeypatch.setattr(kernels, "_CHUNK", tl.constexpr(4))
        for module in (naive, launch):
            monkeypatch.setattr(module, "CHUNK", 4)
    with kernels_of(rotation_scan):
        yield


class Case(KernelCase):
    """Arguments, in float64 with values of float32: T, B, N, H, d."""

    operator, tolerance = rotation_scan, TOLERANCE
    names = RESULTS

    def __init__(self, *sizes: int, double_angle: bool = True, activation: str = "tanh", masks: str = "none") -> None:
        steps, batch, size, heads, width = sizes
        parts = torch.randn(steps, batch, 4 * size)
        parts[steps // 2, :1] = 0  # the identity
        memory = torch.linalg.qr(torch.randn(batch, heads, width, width).double())[0]
        tensors = {"parts": parts, "memory": memory, "h0": torch.randn(batch, size)}
        super().__init__(tensors, {"double_angle": double_angle, "activation": activation}, steps, batch, masks)


@pytest.mark.named("*(1, *none*True*", "*(6, *starts*False*", "*(6, *both*True*", "*(5, *lengths*False*")
@pytest.mark.parametrize("double_angle", [True, False])
@pytest.mark.parametrize("masks", MASKS)
# several chunks, a head that is not full, one that is empty
@pytest.mark.parametrize("sizes", [(1, 1, 2, 1, 2), (6, 2, 5, 2, 3), (5, 1, 5, 4, 2)], ids=str)
def test_kernels_equal_plain_torch(sizes: tuple[int, ...], masks: str, double_angle: bool) -> None:
    Case(*sizes, masks=masks, double_angle=double_angle).check()


def test_opposite_vectors() -> None:
    case = Case(3, 1, 3, 1, 3, double_angle=False, activation="softsign")
    parts = case.tensors["parts"]
    parts[1, :, :3] = -parts[1, :, 9:]
    case.check()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_what_is_no_number_stays_in_its_row_and_comes_from_no_later_step() -> None:
    case = Case(7, 2, 4, 1, 4, masks="both", activation="relu")
    starts, lengths = case.others["starts"], case.others["lengths"]
    starts.zero_()[5, 1], lengths[:] = True, 6
    expected = case.by_kernels()
    case.tensors["parts"][3, 1, 13] = torch.nan
    case.tensors["parts"][6] = torch.nan
    found = case.by_kernels()
    assert torch.equal(found["outputs"][:, 0], expected["outputs"][:, 0])
    assert torch.equal(found["outputs"][[0, 1, 2, 5], 1], expected["outputs"][[0, 1, 2, 5], 1])
    assert found["outputs"][3:5, 1].isnan().all()
    assert torch.equal(found["final memory"], expected["final memory"])
    assert torch.equal(found["parts"][:, 0], expected["parts"][:, 0])
    assert torch.equal(found["parts"][5:], expected["parts"][5:])
    assert not found["memory"].isnan().any()


@pytest.mark.skipif(not ON_GPU, reason="the interpreter takes minutes")
@pytest.mark.parametrize("double_angle", [True, False])
@pytest.mark.parametrize(("size", "heads", "width"), [(50, 4, 13), (128, 4, 32), (64, 1, 64)])
def test_the_same_bits_again(size: int, heads: int, width: int, double_angle: bool) -> None:
    case = Case(150, 9, size, heads, width, masks="both", double_angle=double_angle)
    case.check()
    case.check_repeats()


def test_no_rows_and_three_launches_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Case(3, 0, 4, 2, 2).by_kernels()
    assert found["outputs"].shape == (3, 0, 4)
    launched: list[Any] = []

    def counted(run: Any) -> Any:
        return lambda *given: (launched.append(given[0]), run(*given))

    for name in ("_rotate", "_blend"):
        monkeypatch.setattr(launch, name, counted(getattr(launch, name)))
    Case(2, 1, 2, 1, 2).by_kernels()
    assert len(launched) == 6
