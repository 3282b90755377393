"""The Triton kernels of M²RNN against plain torch in float64: on a GPU, else under Triton's interpreter."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor

from gyral import M2RNN
from gyral.cells.m2rnn import M2RNNCell
from gyral.ops.m2rnn import LARGEST_VALUE, m2rnn
from gyral.ops.m2rnn.triton import launch
from tests.helpers.triton import DEVICE, MASKS, ON_GPU, KernelCase, kernels_of, launches_of
from tests.ops.m2rnn.test_m2rnn import drawn

TOLERANCE = 2e-5 if ON_GPU else 2e-6
RESULTS = ("outputs", "final memory")


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not ON_GPU:  # several chunks
        monkeypatch.setattr(launch, "CHUNK", 2)
        launch._config_of.cache_clear()
    with kernels_of(m2rnn):
        yield
    launch._config_of.cache_clear()


class Case(KernelCase):
    """Arguments, in float64 with values of float32: T, B, G, H, K, V."""

    operator, tolerance = m2rnn, TOLERANCE
    names = RESULTS

    def __init__(self, *sizes: int, clip: float | None = None, masks: str = "none") -> None:
        super().__init__(*drawn(*sizes, clip), *sizes[:2], masks)  # type: ignore[call-arg]


@pytest.mark.named("*(1, *none*None", "*(3, *both*0.5", "*(5, *starts*None", "*(4, *lengths*0.5")
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("masks", MASKS)
# one number; keys that heads share; several strips; keys of each head and a wide memory
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 1, 1), (3, 2, 1, 2, 5, 3), (5, 1, 1, 1, 18, 4), (4, 2, 2, 2, 3, 17)], ids=str
)
def test_kernels_equal_plain_torch(sizes: tuple[int, ...], masks: str, clip: float | None) -> None:
    case = Case(*sizes, clip=clip, masks=masks)
    found = case.check()
    if MASKS[masks][0]:
        beyond = case.beyond
        assert not any(found[name][beyond].any() for name in ("outputs", "q", "k", "v", "forget"))


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_what_is_no_number_stays_in_its_row_and_comes_from_no_later_step() -> None:
    case = Case(5, 2, 1, 1, 2, 3, masks="both")
    starts, lengths = case.others["starts"], case.others["lengths"]
    starts.zero_()[3, 1], lengths[:] = True, 4
    expected = case.by_kernels()
    case.tensors["v"][1, 1, 0, 2] = torch.nan
    case.tensors["v"][4] = torch.nan
    found = case.by_kernels()
    assert torch.equal(found["outputs"][:, 0], expected["outputs"][:, 0])
    assert torch.equal(found["outputs"][[0, 3], 1], expected["outputs"][[0, 3], 1])
    assert found["outputs"][1:3, 1].isnan().flatten(1).any(1).all()
    for name in ("q", "k", "v", "forget"):
        assert torch.equal(found[name][:, 0], expected[name][:, 0])
        assert torch.equal(found[name][3:], expected[name][3:])


def test_clipping_turns_no_nan_into_a_number() -> None:
    case = Case(2, 1, 1, 1, 2, 3, clip=0.5)
    case.tensors["q"].view(-1)[0] = torch.nan
    assert case.by_kernels()["s0"].isnan().any()


def test_results_without_a_gradient_have_that_of_zeros() -> None:
    case = Case(2, 1, 1, 1, 2, 3)
    given = case.arguments()
    results, saved = launch.forward(given)
    for index in range(len(RESULTS)):
        gradients: list[Tensor | None] = [None] * len(results)
        gradients[index] = results[index].cos()
        zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
        found, expected = (launch.backward(given, results, saved, by, {}) for by in (gradients, zeros))
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_no_rows_and_one_launch_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(tensor.any() for tensor in Case(3, 0, 1, 2, 2, 2).by_kernels().values())
    launched = launches_of(monkeypatch, launch)
    Case(1, 1, 1, 2, 2, 2).by_kernels()
    assert launched == [launch.forward_m2rnn, launch.backward_m2rnn]


@pytest.mark.named("0.1-True")
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_the_layer_equals_its_reference(clip: float | None, shared: bool) -> None:
    steps, batch = 3, 2
    torch.manual_seed(0)
    make = partial(M2RNN, 3, 6, heads=2, clip=clip, shared_keys=shared)
    layer, reference = (make(backend=backend).to(DEVICE) for backend in ("fused", "reference"))
    reference.load_state_dict(layer.state_dict())
    lengths = torch.tensor([steps, 1], device=DEVICE)
    starts = (torch.rand(steps, batch) < 0.3).to(DEVICE)
    inputs = torch.randn(steps, batch, 3, device=DEVICE)
    found = []
    for each in (layer, reference):
        x = inputs.clone().requires_grad_()
        outputs, state = each(x, lengths=lengths, starts=starts)
        total = outputs.sin().sum() + state[0].sin().sum()
        found.append([outputs, *state, *torch.autograd.grad(total, [x, *each.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_wide_memories_have_no_kernels_on_a_gpu() -> None:
    for size, reason in ((LARGEST_VALUE, None), (LARGEST_VALUE + 1, "up to 64 columns of a memory, not 65")):
        cell = M2RNNCell(3, size, heads=1).to("meta")
        found = cell.kernels_unsupported_reason()
        assert reason in found if reason else "columns" not in (found or "")  # type: ignore[operator]
        tensors = drawn(1, 1, 1, 1, 1, size, None)[0]
        arguments = m2rnn.Arguments(**{name: each.to("meta") for name, each in tensors.items()})
        assert m2rnn.supports(arguments) == (reason is None)  # type: ignore[misc]


@pytest.mark.skipif(not ON_GPU, reason="the interpreter takes minutes")
@pytest.mark.parametrize(("key", "value"), [(52, 13), (128, 32), (252, 63)])
def test_the_same_bits_again(key: int, value: int) -> None:
    case = Case(60, 9, 1, 4, key, value, masks="both")
    case.check()
    case.check_repeats()
