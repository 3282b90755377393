"""The Triton kernels of Mamba and S4D against plain torch in float64: on a GPU, else under Triton's interpreter."""

import importlib
from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import triton.language as tl
from torch import Tensor

from gyral.cells.mamba import MambaCell
from gyral.cells.s4d import S4DCell
from gyral.ops.channel_scan import channel_state_space
from gyral.ops.channel_scan import triton as channel_kernels
from gyral.ops.selective_scan import selective_state_space
from gyral.ops.selective_scan import triton as selective_kernels
from gyral.ops.triton import states as tiles
from tests.helpers.triton import (
    DEVICE,
    MASKS,
    ON_GPU,
    KernelCase,
    check_cell,
    check_chosen_on_a_gpu,
    kernels_of,
    launches_of,
)

OPERATORS = {"mamba": selective_state_space, "s4d": channel_state_space}
MODULES = {"mamba": selective_kernels, "s4d": channel_kernels}
TOLERANCE = 1e-5 if ON_GPU else 2e-6  # a GPU's exponential and division are not rounded correctly
# T, B, N, S: one step, part of a chunk, several chunks and tiles of channels; on a GPU, more of them
SIZES = [(1, 1, 1, 1), (7, 3, 5, 3), (40, 2, 5, 3), *([(300, 3, 50, 16), (70, 2, 9, 40)] if ON_GPU else [])]


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with kernels_of(*OPERATORS.values()):
        if not ON_GPU:
            use_small_tiles(monkeypatch)
        yield


def use_small_tiles(patch: pytest.MonkeyPatch) -> None:
    """Have 5 channels with 3 or 4 numbers take two tiles, and 40 steps take three chunks, or two spans of chunks."""
    patch.setattr(tiles, "LANES", 16)
    for module in (channel_kernels, channel_kernels.kernels):
        patch.setattr(module, "CHUNK", tl.constexpr(16))
        patch.setattr(module, "SPAN", tl.constexpr(2))


class Case(KernelCase):
    """An operator with arguments: those of mamba or of s4d."""

    tolerance = TOLERANCE

    def __init__(self, kind: str, steps: int, batch: int, size: int, states: int, masks: str = "none") -> None:
        self.kind, self.operator, self.module = kind, OPERATORS[kind], MODULES[kind]
        sequence, of_states = (steps, batch, size), (size, states)
        if kind == "mamba":
            tensors = {"u": torch.randn(sequence), "gate": torch.randn(sequence), "step": 2 * torch.randn(sequence)}
            tensors |= {"matrices": torch.randn(steps, batch, 2 * states), "rate": torch.randn(of_states)}
            tensors |= {"bias": torch.randn(size), "skip": torch.randn(size), "h0": torch.randn(batch, *of_states)}
        else:
            tensors = {name: torch.randn(of_states) for name in ("rate", "frequency")}
            tensors |= {"inputs": torch.randn(sequence), "scale": torch.randn(size) - 2}
            tensors |= {"readout": torch.randn(2, *of_states), "skip": torch.randn(size)}
            tensors["h0"] = torch.randn(batch, 2 * size * states)
        super().__init__(tensors, {}, steps, batch, masks)

    @property
    def sequences(self) -> dict[str, Tensor]:
        """The tensors (T, B, …)."""
        return {
            name: self.tensors[name] for name in ("u", "gate", "step", "matrices", "inputs") if name in self.tensors
        }


ALL = [" ".join((*map(str, sizes), masks)) for sizes in SIZES for masks in MASKS]


@pytest.mark.named("*40 2 5 3 both*", "*7 3 5 3 none*")
@pytest.mark.parametrize("sizes", ALL)
@pytest.mark.parametrize("kind", OPERATORS)
def test_kernels_equal_plain_torch(kind: str, sizes: str) -> None:
    *numbers, masks = sizes.split()
    case = Case(kind, *map(int, numbers), masks)
    found = case.check()
    if MASKS[masks][0]:
        for name, tensor in found.items():
            if tensor.shape[:2] == case.beyond.shape:
                assert not tensor[case.beyond].any(), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPERATORS)
def test_tiles_of_the_size_of_a_gpu(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with kernels_of(*OPERATORS.values()):
        Case(kind, 300 if kind == "s4d" else 40, 1, 9, 16, "starts").check()


@pytest.mark.parametrize("kind", OPERATORS)
def test_decays_near_0_and_1(kind: str) -> None:
    case = Case(kind, 20, 1, 2, 2)
    if kind == "mamba":
        case.tensors["step"] += torch.tensor([3.0, -12.0])
    else:
        case.tensors["scale"] += torch.tensor([6.0, -6.0])
    case.check()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
@pytest.mark.parametrize("kind", OPERATORS)
def test_what_is_no_number_stays_where_it_is(kind: str) -> None:
    """It reaches no earlier step, no other row or channel, and no step after a reset."""
    case = Case(kind, 18, 2, 2, 1, "starts")
    case.others["starts"].zero_()[17, 1] = True
    expected = case.by_kernels()
    for name, tensor in case.sequences.items():
        if name != "matrices":
            tensor[16, 1, 1] = torch.nan
    found = case.by_kernels()
    assert found["outputs"][16, 1, 1].isnan()
    is_changed = torch.zeros(18, 2, 2, dtype=torch.bool)
    is_changed[16, 1, 1] = True
    assert torch.equal(found["outputs"][~is_changed], expected["outputs"][~is_changed])
    assert torch.equal(found["final"], expected["final"])
    case.tensors["h0"][1] = torch.inf
    for tensor in case.sequences.values():
        tensor[:17, 1] = torch.inf
    found = case.by_kernels()
    for name in ("outputs", *case.sequences):
        assert torch.equal(found[name][17:], expected[name][17:]), name
        assert torch.equal(found[name][:, 0], expected[name][:, 0]), name
    assert torch.equal(found["final"], expected["final"])


@pytest.mark.parametrize("kind", OPERATORS)
def test_nothing_beyond_the_lengths_matters(kind: str) -> None:
    case = Case(kind, 18, 2, 2, 1, "both")
    case.others["lengths"] = torch.tensor([15, 17])
    expected = case.by_kernels()
    for tensor in case.sequences.values():
        tensor[case.beyond] = torch.nan
    case.others["starts"][case.beyond] = True
    found = case.by_kernels()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("kind", OPERATORS)
def test_no_steps_no_rows_and_results_alone(kind: str) -> None:
    assert all(tensor.sum() == 0 for tensor in Case(kind, 3, 0, 2, 1).by_kernels().values())
    case = Case(kind, 5, 2, 3, 2)
    given, module = case.arguments(), case.module
    results, saved = module.forward(given)
    for index in (0, 1):
        gradients = [result.cos() if place == index else None for place, result in enumerate(results)]
        found = module.backward(given, results, saved, gradients, {})
        zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
        for name, tensor in module.backward(given, results, saved, zeros, {}).items():
            # other machine code may round in another order
            torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=1e-6)
    given = given._replace(**{name: getattr(given, name)[:0] for name in case.sequences})
    results, saved = module.forward(given)
    assert len(results[0]) == 0
    assert torch.equal(results[1], given.h0)
    found = module.backward(given, results, saved, [None, results[1]], {})
    assert torch.equal(found["h0"], given.h0)
    assert not any(gradient.any() for name, gradient in found.items() if name != "h0")


@pytest.mark.parametrize("kind", OPERATORS)
def test_two_pieces_equal_the_whole_and_second_derivatives_those_of_plain_torch(kind: str) -> None:
    case = Case(kind, 21, 2, 3, 2)
    given = case.arguments()
    outputs, final = case.operator(*given)
    pieces, state = [], given.h0
    for part in (slice(0, 13), slice(13, None)):
        cut = {name: getattr(given, name)[part] for name in case.sequences}
        piece, state = case.operator(*given._replace(**cut, h0=state))
        pieces.append(piece)
    torch.testing.assert_close(torch.cat(pieces), outputs)
    torch.testing.assert_close(state, final)
    found = []
    for run in (case.operator, case.operator.naive):
        leaves = {
            name: getattr(given, name)[:4] if name in case.sequences else getattr(given, name) for name in case.tensors
        }
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in leaves.items()}
        (gradient,) = torch.autograd.grad(run(**leaves)[0].sin().sum(), leaves["rate"], create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), list(leaves.values())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", OPERATORS)
def test_launches_and_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One launch forward and three backward, of which Mamba's last one is a sum of torch; few tensors are kept."""
    case = Case(kind, 40, 3, 16, 16 if kind == "mamba" else 32)
    launched = launches_of(monkeypatch, case.module)
    small = Case(kind, 2, 1, 1, 1)
    sum(
        small.operator(**{name: each.float().to(DEVICE).requires_grad_() for name, each in small.tensors.items()})
    ).sum().backward()
    assert len(launched) == len(set(launched)) == (3 if kind == "mamba" else 4)
    given = case.arguments()
    results, saved = case.module.allocate(given)
    tensors = [each for each in given if isinstance(each, Tensor)]
    kept = sum(each.numel() for each in (*tensors, *saved))
    assert kept <= 2 * sum(each.numel() for each in (*tensors, *results))


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
@pytest.mark.parametrize("kind", OPERATORS)
def test_the_same_bits_again(kind: str) -> None:
    case = Case(kind, 300, 40, 50, 16, "both")
    case.check_repeats()


CELLS = {"mamba": MambaCell(4, 3, state_size=2), "s4d": S4DCell(4, 3, state_size=2)}


@pytest.mark.parametrize("name", CELLS)
def test_cells_equal_their_loop(name: str) -> None:
    check_chosen_on_a_gpu(CELLS[name])
    assert importlib.import_module(CELLS[name].fused_operator.kernels["cuda"]) is MODULES[name]
    check_cell(CELLS[name])
