"""The Triton kernels of permutation scans against plain torch in float64: on a GPU, else under the interpreter."""

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")


from gyral.cells.pd_ssm import PDSSMCell
from gyral.ops.permutation_scan import permutation_scan, supports
from gyral.ops.permutation_scan.triton import launch, scan, scores
from gyral.ops.polar import polar
from tests.helpers.triton import DEVICE, MASKS, ON_GPU, KernelCase, check_cell, kernels_of, launches_of

TOLERANCE = 1e-5 if ON_GPU else 2e-6  # a GPU's exponential and division are not rounded correctly
# T, B, N, K: a single number, one step, sizes that are powers of 2 and others, one matrix, one number
SIZES = [(1, 1, 1, 1), (1, 2, 4, 2), (7, 2, 5, 3), (5, 2, 4, 4), (4, 1, 3, 1), (3, 2, 1, 2)]


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not ON_GPU:
        for name, value in (("AHEAD", 2), ("ENTRIES", 64), ("GROUPS", 2)):
            monkeypatch.setattr(launch, name, value)
    with kernels_of(permutation_scan, polar):
        yield


class Case(KernelCase):
    """Arguments: tensors with a gradient, in float64 with values of float32, and others."""

    operator, tolerance = permutation_scan, TOLERANCE

    def __init__(self, steps: int, batch: int, size: int, matrices: int, masks: str = "none") -> None:
        shapes = {
            "selection": (steps, batch, matrices),
            "dictionary": (matrices, size, size),
            "decay": (steps, batch, 2 * size),
            "values": (steps, batch, 2 * size),
            "h0": (batch, 2 * size),
        }
        super().__init__({name: torch.randn(shape) for name, shape in shapes.items()}, {}, steps, batch, masks)


@pytest.mark.named("*(1, 2*none*", "*(7, *both*", "*(5, *starts*", "*(4, *none*", "*(3, *lengths*")
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_kernels_equal_plain_torch(sizes: tuple[int, ...], masks: str) -> None:
    case = Case(*sizes, masks)
    found = case.check()
    if MASKS[masks][0]:
        beyond = case.beyond
        assert not any(found[name][beyond].any() for name in ("outputs", "selection", "decay", "values"))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(5, 2, 32, 8), (5, 1, 50, 3), (2, 1, 70, 3)], ids=str)
def test_sizes_of_a_gpu(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AHEAD", 4), ("ENTRIES", 2048), ("GROUPS", 256)):
        monkeypatch.setattr(launch, name, value)
    Case(*sizes, "both").check()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_nothing_before_a_start_or_beyond_the_end_is_read() -> None:
    case = Case(5, 2, 3, 2, "both")
    case.others["starts"].zero_()[2, 1], case.others["lengths"][:] = True, 4
    expected = case.by_kernels()
    case.tensors["h0"][1] = case.tensors["values"][:2, 1] = torch.nan
    for name in ("selection", "decay", "values"):
        case.tensors[name][4:] = torch.nan
    found = case.by_kernels()
    assert torch.equal(found["outputs"][2:], expected["outputs"][2:])
    assert torch.equal(found["outputs"][:, 0], expected["outputs"][:, 0])
    assert torch.equal(found["final"], expected["final"])
    assert torch.equal(found["values"], expected["values"])
    for name in ("selection", "decay"):
        assert torch.equal(found[name][2:], expected[name][2:])
        assert torch.equal(found[name][:, 0], expected[name][:, 0])


def test_the_first_of_equal_scores_is_the_largest() -> None:
    case = Case(3, 1, 4, 2)
    case.tensors["dictionary"][:, 2:] = case.tensors["dictionary"][:, :2]
    case.check()


@pytest.mark.parametrize("shape", [(129, 1, False), (128, 32, True), (64, 65, False), (32, 8, True)], ids=str)
def test_sizes_that_fit_into_registers(shape: tuple[int, int, bool]) -> None:
    size, matrices, fits = shape
    tensors = [torch.empty(2, 1, matrices), torch.empty(matrices, size, size), *[torch.empty(2, 1, 2 * size)] * 2]
    given = permutation_scan.Arguments(*(each.to("meta") for each in tensors), torch.empty(1, 2 * size))
    assert supports(given) == fits


def test_no_rows() -> None:
    assert not any(tensor.any() for tensor in Case(3, 0, 4, 2).by_kernels().values())


def test_each_result_may_be_differentiated_alone() -> None:
    case = Case(2, 1, 2, 2)
    given = permutation_scan.Arguments(**{name: each.float().to(DEVICE) for name, each in case.tensors.items()})
    results, saved = launch.forward(given)
    for index in range(2):
        gradients = [each.cos() if place == index else None for place, each in enumerate(results)]
        zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
        found, expected = (launch.backward(given, results, saved, by, {}) for by in (gradients, zeros))
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_two_launches_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = launches_of(monkeypatch, launch)
    Case(1, 1, 2, 1).by_kernels()
    assert launched == [scores.choose_places, scan.forward_scan, scan.backward_scan, scores.backward_scores]


def test_the_cell_equals_its_loop() -> None:
    check_cell(PDSSMCell(4, 5, state_size=3, dictionary_size=2))


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
def test_the_same_bits_again() -> None:
    case = Case(300, 40, 60, 8, "both")
    case.tensors["decay"] /= 4
    case.check_repeats()
