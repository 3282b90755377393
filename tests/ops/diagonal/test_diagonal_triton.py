"""The Triton kernels of diagonal scans against plain torch in float64: on a GPU, else under Triton's interpreter."""

import copy
import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import triton.language as tl
from torch import Tensor

from gyral.cells.lru import LRUCell
from gyral.cells.min_gru import MinGRUCell
from gyral.cells.min_lstm import MinLSTMCell
from gyral.cells.rg_lru import RGLRUCell
from gyral.cells.rotation_scan import RotationScanCell
from gyral.cells.s5 import S5Cell
from gyral.nn.recurrent import Recurrent
from gyral.ops.diagonal import diagonal_scan, state_space
from gyral.ops.diagonal.layer import KINDS as STATE_SPACES
from gyral.ops.diagonal.triton import kernels as source
from gyral.ops.diagonal.triton import launch, layer, layer_kernels, parameters
from gyral.ops.min_gated import blend, min_gated, rg_lru
from gyral.ops.operator import Operator
from gyral.ops.rum.naive import ACTIVATIONS
from tests.helpers.triton import DEVICE, MASKS, ON_GPU, KernelCase, check_cell, check_chosen_on_a_gpu, kernels_of

OPERATORS = (diagonal_scan, state_space, min_gated, rg_lru, blend)
TOLERANCE = 1e-5 if ON_GPU else 2e-6  # a GPU's exponential and division are not rounded correctly
SCANS = ("constant", "decay", "complex constant", "complex decay", "min_gru", "min_lstm", "rg_lru", "blend")
KINDS = (*SCANS, *STATE_SPACES)
SIZES = [(1, 1, 1), (7, 3, 5), (40, 2, 5), (100, 2, 50)]  # T, B, N
STEPS = source.BLOCK_STEPS
PRODUCTS = ("rg_lru", *STATE_SPACES)  # the kinds whose kernels are around products of matrices


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with kernels_of(*OPERATORS):
        if not ON_GPU:
            set_steps_of_a_tile(monkeypatch, tl.constexpr(32))  # a sequence of 40 steps has two tiles
        yield


def set_steps_of_a_tile(monkeypatch: pytest.MonkeyPatch, steps: Any) -> None:
    for module in (source, layer_kernels):
        monkeypatch.setattr(module, "BLOCK_STEPS", steps)


class Case(KernelCase):
    """An operator with arguments: those of a kind."""

    tolerance = TOLERANCE

    def __init__(self, kind: str, steps: int, batch: int, size: int, masks: str = "none") -> None:
        normal, sequence, states = torch.randn, (steps, batch), size + 2
        width = 2 * states if kind in STATE_SPACES else 2 * size if "complex" in kind else size
        tensors, others = {"h0": normal(batch, width)}, dict[str, Any]()
        if kind in ("min_gru", "min_lstm"):
            self.operator: Operator = min_gated
            tensors["projected"] = 2 * normal(*sequence, (2 if kind == "min_gru" else 3) * size)
        elif kind == "rg_lru":
            self.operator = rg_lru
            heads = min(size, 2)  # with 5 units, the last head is not full
            block = -(-size // heads)
            tensors |= {"inputs": normal(*sequence, size), "weight": normal(2, heads, block, block) / block**0.5}
            tensors |= {"bias": normal(2, size), "decay": 3 * normal(size) - 5}
            others["fresh"] = torch.arange(batch) % 2
        elif kind in STATE_SPACES:
            self.operator = state_space
            outputs = 2 * size if size < 50 else size
            tensors["inputs"] = normal(*sequence, outputs)
            tensors |= {"drive": normal(2, states, outputs), "readout": normal(2, outputs, states)}
            tensors |= {"skip": normal(outputs), "rate": normal(states), "frequency": normal(states)}
            tensors["scale"] = normal(states) - 2
            if kind != "lru":
                tensors["rate"] = -tensors["rate"].abs() - 0.3
            others |= {"kind": kind, "gain": 1.0 if kind == "lru" else 2.0}
        elif kind == "blend":
            self.operator = blend
            tensors |= {"inputs": normal(*sequence, size), "gate": 2 * normal(*sequence, size)}
            others["activation"] = [*ACTIVATIONS][(steps + batch) % len(ACTIVATIONS)]
        else:
            self.operator, others["is_complex"] = diagonal_scan, "complex" in kind
            decay = torch.rand(*(() if "constant" in kind else sequence), width) - 0.5
            tensors |= {"values": normal(*sequence, width), "decay": 1.4 * decay}
        super().__init__(tensors, others, steps, batch, masks)

    def cotangent(self, result: Tensor) -> Tensor:
        """Return random numbers: with a smooth wave, the gradients of frequencies lose digits over 100 steps."""
        return torch.randn(result.shape, generator=torch.Generator().manual_seed(5)).to(result)


ALL = [" ".join((*map(str, sizes), masks)) for sizes in SIZES for masks in MASKS]


@pytest.mark.named("*7 3 5 both*", "*40 2 5 none*", "*1 1 1 lengths*")
@pytest.mark.parametrize("sizes", ALL)
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_equal_plain_torch(kind: str, sizes: str) -> None:
    *numbers, masks = sizes.split()
    case = Case(kind, *map(int, numbers), masks)
    found = case.check()
    if MASKS[masks][0]:
        for name, tensor in found.items():
            if tensor.shape[:2] == case.beyond.shape:
                assert not tensor[case.beyond].any(), name


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str) -> None:
    case = Case("blend", 9, 3, 5, "both")
    case.others["activation"] = activation
    case.check()


def test_products_in_bfloat16() -> None:
    for kind in ("rg_lru", "zoh"):
        case = Case(kind, 4, 2, 5, "both")
        expected = case.in_float64()
        case.others["product_dtype"] = torch.bfloat16
        for name, tensor in case.by_kernels().items():
            error = (tensor - expected[name]).norm() / expected[name].norm().clamp(min=1e-9)
            assert error <= 0.02, f"{name} of {kind}: {error:.1e}"
            assert error > 1e-5 or name in ("h0", "final", "skip"), f"{name} of {kind}: {error:.1e}"


def test_results_that_no_backward_pass_reads_may_be_overwritten() -> None:
    for name in ("LRU", "RGLRU"):
        module = Recurrent(lambda size, name=name: copy.deepcopy(CELLS[name]).to(DEVICE), 4, backend="fused")
        found = []
        for overwrites in (False, True):
            outputs, (state,) = module(torch.ones(3, 2, 4, device=DEVICE))
            total = outputs.sum()
            if overwrites:
                state.hidden.mul_(2.0)
                outputs.mul_(2.0)
            found.append(torch.autograd.grad(total, list(module.parameters())))
        assert all(map(torch.equal, *found)), name


def test_tiles_of_the_size_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    set_steps_of_a_tile(monkeypatch, STEPS)
    Case("complex decay", STEPS.value + 2, 1, 3, "starts").check()


KEPT = {"min_gru": [False, True], "min_lstm": [False, True, False, False], "blend": [True, False]}


def test_saturated_gates_are_exact() -> None:
    large = torch.tensor([1000.0, -1000.0])
    for kind, gates in (("min_gru", 1), ("min_lstm", 2), ("blend", 1)):
        case = Case(kind, 1, 2**gates, 3)
        values = torch.cartesian_prod(*[large] * gates).view(1, -1, gates, 1).expand(1, -1, gates, 3).double()
        if kind == "blend":
            case.tensors["gate"] = values.flatten(2)
        else:
            case.tensors["projected"][..., 3:] = values.flatten(2)
        found, expected = case.by_kernels(), case.in_float64()
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=5e-7, atol=0)
            assert torch.equal(found[name] == 0, tensor == 0), (kind, name)
        is_kept = torch.tensor(KEPT[kind])
        assert torch.equal(found["final"][is_kept], case.tensors["h0"][is_kept])
    case = Case("rg_lru", 2, 2, 3)
    case.tensors["bias"].copy_(1000 * torch.tensor([[1.0], [-1.0]]))
    case.check()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_a_reset_forgets_even_what_is_no_number() -> None:
    for kind in ("complex decay", "min_gru", "rg_lru", "zoh"):
        case = Case(kind, 6, 2, 3, "starts")
        starts = case.others["starts"]
        starts.zero_()[3, 1] = True
        expected = case.by_kernels()
        for name, tensor in case.tensors.items():
            if name == "h0":
                tensor[1] = torch.nan
            elif tensor.shape[:2] == starts.shape:
                tensor[:3, 1] = torch.inf
        found = case.by_kernels()
        assert torch.equal(found["outputs"][3:], expected["outputs"][3:])
        assert torch.equal(found["outputs"][:, 0], expected["outputs"][:, 0])
        assert found["outputs"][:3, 1].isnan().any()
        assert torch.equal(found["final"], expected["final"])


def test_nothing_beyond_the_lengths_matters() -> None:
    for kind in ("complex decay", "min_lstm", "rg_lru", "lru"):
        case = Case(kind, 6, 2, 3, "both")
        expected = case.by_kernels()
        for tensor in case.tensors.values():
            if tensor.shape[:2] == case.beyond.shape:
                # a product of all steps multiplies zeros by them
                tensor[case.beyond] = 1e3 if kind in PRODUCTS else torch.nan
        case.others["starts"][case.beyond] = True
        found = case.by_kernels()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_no_steps_and_no_rows() -> None:
    for kind in (*SCANS, "lru"):
        empty = Case(kind, 3, 0, 2)
        assert all(tensor.sum() == 0 for tensor in empty.by_kernels().values())
        case = Case(kind, 1, 2, 3)
        given, module = case.arguments(), module_of(case)
        cut = {
            name: value[:0]
            for name, value in given._asdict().items()
            if isinstance(value, Tensor) and value.shape[:2] == (1, 2)
        }
        given = given._replace(**cut)
        results, saved = module.forward(given)
        assert len(results[0]) == 0
        assert torch.equal(results[1], given.h0)
        found = module.backward(given, results, saved, [None, results[1]], {})
        assert torch.equal(found["h0"], given.h0)
        assert not any(gradient.any() for name, gradient in found.items() if name != "h0")
        assert kind in PRODUCTS or not saved


def module_of(case: Case) -> Any:
    return importlib.import_module(case.operator.kernels["cuda"])


def test_each_result_may_be_differentiated_alone() -> None:
    for kind in ("complex constant", "min_gru", "lru"):
        case = Case(kind, 5, 2, 3)
        given, module = case.arguments(), module_of(case)
        for index in (0, 1):
            gradients: list[Tensor | None] = [None, None]
            results, saved = module.forward(given)
            gradients[index] = results[index].cos()
            found = module.backward(given, results, saved, gradients, {})
            zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
            expected = module.backward(given, results, saved, zeros, {})
            for name, tensor in expected.items():  # other machine code may round in another order
                torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=1e-6)


def test_two_pieces_equal_the_whole_and_second_derivatives_those_of_plain_torch() -> None:
    case = Case("complex decay", 7, 2, 3)
    given = case.arguments()
    outputs, final = diagonal_scan(**given._asdict())
    first = diagonal_scan(given.values[:4], given.decay[:4], given.h0, None, None, True)
    second = diagonal_scan(given.values[4:], given.decay[4:], first[1], None, None, True)
    torch.testing.assert_close(torch.cat((first[0], second[0])), outputs)
    torch.testing.assert_close(second[1], final)
    found = []
    for run in (diagonal_scan, diagonal_scan.naive):
        leaves = [tensor.clone().requires_grad_() for tensor in given[:3]]
        (gradient,) = torch.autograd.grad(run(*leaves, None, None, True)[0].sin().sum(), leaves[1], create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_launches_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans have one launch each way, and keep nothing but arguments and results; layers two, and the states."""
    run, launched = launch.launch, []

    def counted(kernel: Any, *given: Any) -> None:
        launched.append(kernel)
        run(kernel, *given)

    for module in (launch, layer):
        monkeypatch.setattr(module, "launch", counted)
    for kind in ("complex decay", "min_lstm", "rg_lru", "lru"):
        case = Case(kind, 9, 3, 5)
        given = case.arguments()
        leaves = {
            name: each.requires_grad_() if isinstance(each, Tensor) and each.is_floating_point() else each
            for name, each in given._asdict().items()
        }
        kept: dict[int, int] = {}

        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[tensor.data_ptr()] = tensor.numel()
            return tensor

        launched.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            results = case.operator(**leaves)
        results[0].sum().backward()
        expected = [source.forward_scan, source.backward_scan]
        if kind in STATE_SPACES:
            expected = [parameters.forward_parameters, layer_kernels.forward_layer]
            expected += [layer_kernels.backward_layer, parameters.backward_parameters]
        assert launched == expected
        used = sum(each.numel() for each in (*leaves.values(), *results) if isinstance(each, Tensor))
        assert sum(kept.values()) <= (2 if kind in PRODUCTS else 1) * used


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_again(kind: str) -> None:
    case = Case(kind, 300, 40, 50, "both")
    case.check()
    case.check_repeats()


CELLS = {
    "LRU": LRUCell(4, 5, state_size=3),
    "S5": S5Cell(4, 5, state_size=3),
    "RGLRU": RGLRUCell(4, 5, heads=2),
    "MinGRU": MinGRUCell(4, 5),
    "MinLSTM": MinLSTMCell(4, 5),
    "RotationScan": RotationScanCell(4, 5, heads=2),
}


@pytest.mark.named("*-True")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_cells_equal_their_loop(name: str, masked: bool) -> None:
    if name != "RotationScan":
        check_chosen_on_a_gpu(CELLS[name])
    check_cell(CELLS[name], masked)
