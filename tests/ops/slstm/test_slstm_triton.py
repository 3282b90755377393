"""The Triton kernels of sLSTM against plain torch in float64: on a GPU, else under Triton's interpreter."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor

from gyral import SLSTM
from gyral.ops.slstm import naive, slstm
from gyral.ops.slstm.triton import launch, steps
from tests.helpers.triton import DEVICE, MASKS, ON_GPU, KernelCase, kernels_of, launches_of
from tests.ops.slstm.test_slstm import drawn

TOLERANCE = 2e-5 if ON_GPU else 2e-6
RESULTS = ("outputs", *(f"final {name}" for name in naive.State._fields))


@pytest.fixture(autouse=True)
def triton_kernels() -> Iterator[None]:
    with kernels_of(slstm):
        yield


@pytest.fixture(params=["resident", "half", "steps"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the weights of all gates or of two in registers, or launch each step."""
    settings = launch._settings

    def fixed(*given: Any) -> Any:
        config, warps = settings(*given)
        return config._replace(resident=request.param == "resident"), warps

    monkeypatch.setattr(launch, "_settings", fixed)
    if request.param == "steps":
        monkeypatch.setattr(launch, "ON_CHIP", 0)
        monkeypatch.setattr(steps, "BLOCK", 8)


class Case(KernelCase):
    """Arguments, in float64 with values of float32: T, B, H, d."""

    operator, tolerance = slstm, TOLERANCE
    names = RESULTS

    def __init__(self, *sizes: int, masks: str = "none") -> None:
        super().__init__(drawn(*sizes)[0], {}, *sizes[:2], masks)


@pytest.mark.named("res*-(1, *none*", "res*-(3, *both*", "half-(3, *starts*", "steps-(3, *both*", "steps-(5, *none*")
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 2, 2, 5), (5, 2, 1, 17)], ids=str)
def test_kernels_equal_plain_torch(sizes: tuple[int, ...], masks: str, kind: None) -> None:
    case = Case(*sizes, masks=masks)
    found = case.check()
    if MASKS[masks][0]:
        beyond = case.beyond
        assert not found["outputs"][beyond].any()
        assert not found["projected"][beyond].any()


def test_settings() -> None:
    lowest = naive.lowest_scale(torch.float32)
    for size, heads, expected in ((50, 1, (64, True)), (128, 1, (128, False)), (128, 4, (32, True))):
        config, warps = launch._settings(size, heads, lowest)
        assert (config.block, config.resident) == expected
        assert config.block % config.tile == 0
        assert config.lines >= max(4, warps)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_what_is_no_number_stays_in_its_row_and_comes_from_no_later_step() -> None:
    case = Case(5, 2, 1, 3, masks="both")
    starts, lengths = case.others["starts"], case.others["lengths"]
    starts.zero_()[3, 1], lengths[:] = True, 4
    expected = case.by_kernels()
    case.tensors["projected"][1, 1, 4] = torch.nan
    case.tensors["projected"][4] = torch.nan
    found = case.by_kernels()
    assert torch.equal(found["outputs"][:, 0], expected["outputs"][:, 0])
    assert torch.equal(found["outputs"][[0, 3], 1], expected["outputs"][[0, 3], 1])
    assert found["outputs"][1:3, 1].isnan().any(1).all()
    assert torch.equal(found["projected"][:, 0], expected["projected"][:, 0])
    assert torch.equal(found["projected"][3:], expected["projected"][3:])


def test_the_first_step_forgets_the_initial_state() -> None:
    case = Case(2, 1, 1, 2)
    for name, value in zip(naive.State._fields, naive.start(torch.zeros(1, 2)), strict=True):
        case.tensors[name] = value.double()
    found, expected = case.by_kernels(), case.results(slstm.naive, torch.float64)
    for name, tensor in expected.items():
        assert (found[name] - tensor).norm() <= TOLERANCE * tensor.norm(), name


def test_exponential_gates_do_not_overflow() -> None:
    case = Case(2, 1, 1, 2)
    case.tensors["projected"][..., :4] += 200
    assert all(value.isfinite().all() for value in case.by_kernels().values())


@pytest.mark.parametrize("largest", [launch.ON_CHIP, 0])
def test_results_without_a_gradient_have_that_of_zeros(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "ON_CHIP", largest)
    case = Case(2, 1, 1, 2)
    given = case.arguments()
    results, saved = launch.forward(given)
    for index in range(0, len(RESULTS), 2):
        gradients: list[Tensor | None] = [None] * len(results)
        gradients[index] = results[index].cos()
        zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
        found, expected = (
            launch.backward(given, results, [each.clone() for each in saved], by, {}) for by in (gradients, zeros)
        )
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_no_rows_and_one_launch_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for largest in (0, launch.ON_CHIP):
        monkeypatch.setattr(launch, "ON_CHIP", largest)
        assert not any(tensor.any() for tensor in Case(3, 0, 2, 2).by_kernels().values())
    launched = launches_of(monkeypatch, launch)
    Case(2, 1, 2, 2).by_kernels()
    assert launched == [launch.forward_slstm, launch.backward_slstm]


@pytest.mark.named("2-True")
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_layer_equals_its_reference(heads: int, masked: bool) -> None:
    length, batch = 3, 2
    torch.manual_seed(0)
    layer, reference = (SLSTM(3, 6, heads=heads, backend=backend).to(DEVICE) for backend in ("fused", "reference"))
    with torch.no_grad():
        layer.cells[0].weight_hh.normal_(std=0.5)
    reference.load_state_dict(layer.state_dict())
    masks: dict[str, Any] = {}
    if masked:
        masks["lengths"] = torch.tensor([length, 1], device=DEVICE)
        masks["starts"] = (torch.rand(length, batch) < 0.3).to(DEVICE)
    inputs = torch.randn(length, batch, 3, device=DEVICE)
    found = []
    for each in (layer, reference):
        x = inputs.clone().requires_grad_()
        outputs, state = each(x, **masks)
        total = sum(leaf.sin().sum() for leaf in (outputs, *state[:3]))
        found.append([outputs, *state, *torch.autograd.grad(total, [x, *each.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter takes minutes")
@pytest.mark.parametrize(("heads", "width"), [(1, 50), (4, 13), (4, 32), (1, 128), (1, 250)])
def test_the_same_bits_again(heads: int, width: int) -> None:
    case = Case(60, 9, heads, width, masks="both")
    case.check()
    case.check_repeats(but=["weight_hh"])
