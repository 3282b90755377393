"""The Triton kernels of the delta rule against single steps in float64: on a GPU, else under Triton's interpreter."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor
from torch.nn import functional as F

import gyral
from gyral.ops.delta import LARGEST_KEY, delta_scan
from gyral.ops.delta.triton import launch
from tests.helpers.triton import DEVICE, ON_GPU, check_cell, check_chosen_on_a_gpu, kernels_of
from tests.ops.delta.test_delta import drawn, step_by_step

TOLERANCE = 1e-5 if ON_GPU else 3e-6  # a GPU's exponential and division are not rounded correctly
DECAYS = ("none", "scalar", "vector")
ERASES: dict[str, Any] = {"keeps": False, "vectors": True, "rates": "rates"}
# T, B, n, G, H, K, V: two chunks; several micro-steps, whose steps chunks divide, with keys for two heads; two blocks
# of channels of keys, or of values
SMALL = (18, 2, 1, 1, 1, 3, 5)
SHAPES = {
    "micro_steps": ((15, 2, 3, 1, 2, 5, 3), "vector", "rates", True),
    "micro_steps_and_groups": ((9, 1, 4, 2, 4, 3, 2), "scalar", "vectors", True),
    "wide_keys": ((18, 1, 1, 1, 1, 40, 3), "vector", "rates", False),
    "wide_keys_of_one_decay": ((34, 1, 1, 1, 1, 40, 3), "scalar", "keeps", False),
    "wide_values": ((18, 1, 1, 1, 1, 3, 40), "scalar", "rates", True),
    "one_step": ((1, 1, 1, 1, 1, 1, 1), "vector", "vectors", False),
}
LARGE = {
    "1024_steps": ((1024, 8, 1, 4, 4, 32, 32), "scalar", "rates", False),
    "1024_steps_of_channels": ((1024, 4, 1, 4, 4, 32, 32), "vector", "vectors", True),
    "reads": ((500, 4, 1, 1, 4, 64, 50), "scalar", "keeps", True),
    "reads_of_channels": ((500, 4, 1, 2, 2, 50, 64), "vector", "keeps", True),
    "products": ((300, 3, 2, 2, 4, 50, 50), "none", "rates", True),
    "wide": ((100, 2, 1, 1, 2, 128, 128), "scalar", "rates", True),
    "wide_channels": ((100, 2, 2, 2, 2, 128, 128), "vector", "vectors", True),
    "wide_reads": ((100, 2, 1, 1, 2, 128, 128), "scalar", "keeps", False),
    "widest": ((40, 2, 1, 1, 1, 256, 256), "scalar", "vectors", False),
    "widest_reads": ((40, 2, 1, 1, 1, 256, 256), "none", "keeps", True),
}


@pytest.fixture(autouse=True)
def triton_kernels() -> Iterator[None]:
    with kernels_of(delta_scan):
        yield


class Case:
    """Arguments of the operator: tensors with a gradient, in float64 with values of float32, and others."""

    def __init__(self, sizes: tuple[int, ...], decays: str, erases: str, masked: bool = False) -> None:
        tensors, self.others = drawn(*sizes, decays=decays, erases=ERASES[erases])
        self.tensors = {name: tensor.float().double() for name, tensor in tensors.items()}
        steps, batch = sizes[:2]
        self.name = f"{sizes} {decays} {erases} {masked}"
        if masked:
            self.others["lengths"] = torch.randint(1, steps + 1, (batch,))
            self.others["starts"] = torch.rand(steps, batch) < 0.15

    def arguments(self) -> dict[str, Any]:
        """Return the arguments in float32, on the device of the kernels, where the tensors require gradients."""
        leaves = {name: each.to(DEVICE, torch.float32).requires_grad_() for name, each in self.tensors.items()}
        others = {name: each.to(DEVICE) if isinstance(each, Tensor) else each for name, each in self.others.items()}
        return {**leaves, **others}

    def results(self, values: Any, leaves: dict[str, Tensor], by: Any = None) -> dict[str, Tensor]:
        """Return results and gradients, in float64."""
        generator = torch.Generator().manual_seed(5)
        given = [torch.randn(value.shape, generator=generator).to(value) for value in values] if by is None else by
        gradients = torch.autograd.grad(values, list(leaves.values()), given)
        found = {"outputs": values[0], "final": values[1]} | dict(zip(leaves, gradients, strict=True))
        return {name: tensor.detach().cpu().double() for name, tensor in found.items()}

    def by_kernels(self, by: Any = None) -> dict[str, Tensor]:
        given = self.arguments()
        return self.results(delta_scan(**given), {name: given[name] for name in self.tensors}, by)

    def by_steps(self) -> dict[str, Tensor]:
        leaves = {name: each.clone().requires_grad_() for name, each in self.tensors.items()}
        return self.results(step_by_step(**leaves, **self.others), leaves)

    def check(self) -> dict[str, Tensor]:
        """Compare the kernels with single steps; return their results."""
        found, expected = self.by_kernels(), self.by_steps()
        for name, tensor in expected.items():
            error, size = (found[name] - tensor).norm().item(), tensor.norm().item()
            assert error <= TOLERANCE * size, f"{name}: {error:.1e} of {size:.1e}: {self.name}"
        return found


@pytest.mark.named(
    "none-keeps-*", "scalar-vectors-masked", "scalar-keeps-masked", "vector-keeps-masked", "*rates-masked"
)
@pytest.mark.parametrize("masks", ["whole", "masked"])
@pytest.mark.parametrize("erases", ERASES)
@pytest.mark.parametrize("decays", DECAYS)
def test_kernels_equal_single_steps(decays: str, erases: str, masks: str) -> None:
    case = Case(SMALL, decays, erases, masks == "masked")
    if decays != "none":
        case.tensors["decay"][2, 0] = -torch.inf  # a gate that is exactly 0
    found = case.check()
    if masks == "masked":
        beyond = torch.arange(SMALL[0]).unsqueeze(1) >= case.others["lengths"]
        for name, tensor in found.items():
            if tensor.shape[:2] == beyond.shape:
                assert not tensor[beyond].any(), name


@pytest.mark.named("micro_steps_and_groups", "wide_keys", "one_step")
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: str) -> None:
    Case(*SHAPES[shape]).check()


@pytest.mark.skipif(not ON_GPU, reason="the interpreter is slow, and has one thread")
@pytest.mark.parametrize("shape", LARGE)
def test_large_shapes_and_the_same_bits_again(shape: str) -> None:
    case = Case(*LARGE[shape])
    case.check()
    case.check_repeats()


@pytest.mark.parametrize("decays", ["none", pytest.param("vector", marks=pytest.mark.slow)])
def test_nearly_equal_keys(decays: str) -> None:
    """The powers of L are large there, and cancel in its inverse."""
    case = Case((40, 1, 1, 1, 1, 8, 4), decays, "vectors")
    keys = F.normalize(0.05 * case.tensors["k"] + 1, dim=-1)
    case.tensors |= {"k": keys.float().double(), "erase": (keys * torch.rand_like(keys[..., :1])).float().double()}
    case.check()


@pytest.mark.named("*mixed*")
@pytest.mark.parametrize("kind", ["mixed", "weak"])
@pytest.mark.parametrize("decays", ["scalar", "vector"])
def test_decays_near_0_and_1(decays: str, kind: str) -> None:
    """Sums of log decays are large where one decay is 0, and their differences must keep their digits."""
    case = Case((20, 1, 1, 1, 1, 4, 3), decays, "vectors", kind == "mixed")
    case.tensors["decay"] *= 1e-4
    if kind == "mixed":
        case.tensors["decay"][::3] = -30.0
        case.tensors["decay"][1::7] = -1000.0
    case.check()


def test_pieces_equal_the_whole_and_second_derivatives_those_of_plain_torch() -> None:
    case = Case((17, 2, 1, 1, 1, 3, 2), "scalar", "rates")
    given = case.arguments()
    whole = delta_scan(**given)
    cut = int(torch.randint(1, 17, ()))
    of_steps = [name for name in case.tensors if name != "s0"]
    first = delta_scan(**given | {name: given[name][:cut] for name in of_steps})
    second = delta_scan(**given | {name: given[name][cut:] for name in of_steps} | {"s0": first[1]})
    torch.testing.assert_close(torch.cat((first[0], second[0])), whole[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(second[1], whole[1], rtol=1e-4, atol=1e-5)
    found = []
    for run in (delta_scan, delta_scan.naive):
        outputs, _ = run(**given)
        (gradient,) = torch.autograd.grad(outputs.sin().sum(), given["k"], create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), given["v"])[0])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("decays", ["scalar", pytest.param("vector", marks=pytest.mark.slow)])
def test_what_is_not_finite_reaches_no_earlier_step_no_other_row_and_nothing_behind_a_start(decays: str) -> None:
    case = Case((20, 2, 1, 1, 2, 3, 2), decays, "vectors", True)
    case.others["lengths"] = torch.tensor([20, 20])
    starts = case.others["starts"].zero_()
    starts[18, 1] = True
    given = case.arguments()
    expected = delta_scan(**given)
    for name in ("k", "v", "erase", "decay"):
        changed = {**given, name: given[name].detach().clone()}
        changed[name][7, 1] = torch.nan if name in ("k", "decay") else torch.inf
        outputs, final = delta_scan(**changed)
        assert outputs[7:18, 1].isnan().all(), name
        for one, other in ((outputs[:7], expected[0][:7]), (outputs[:, 0], expected[0][:, 0])):
            assert torch.equal(one, other), name
        torch.testing.assert_close(outputs[18:], expected[0][18:])
        torch.testing.assert_close(final, expected[1])
    # the gradient of an output
    by = [torch.zeros_like(each) for each in expected]
    by[0][7, 1] = torch.inf
    for name, gradient in case.by_kernels(by).items():
        if gradient.shape[:2] == (20, 2) and name != "outputs":
            assert not gradient[8:].any(), name
            assert not gradient[:, 0].any(), name
            assert not gradient[:8, 1].isfinite().all(), name


def test_nothing_beyond_the_lengths_matters() -> None:
    case = Case((6, 2, 1, 1, 1, 3, 2), "vector", "rates", True)
    case.others["lengths"] = torch.tensor([6, 3])
    expected = case.by_kernels()
    for tensor in case.tensors.values():
        if len(tensor) == 6:
            tensor[3:, 1] = torch.nan
    case.others["starts"][3:, 1] = True
    found = case.by_kernels()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_no_rows_and_each_result_alone() -> None:
    assert all(tensor.sum() == 0 for tensor in Case((3, 0, 1, 1, 1, 2, 2), "scalar", "rates").by_kernels().values())
    for decays, erases in (("none", "vectors"), ("scalar", "keeps")):
        case = Case((5, 2, 1, 1, 1, 3, 2), decays, erases)
        given = delta_scan.Arguments(**case.arguments())
        for index in (0, 1):
            results, saved = launch.forward(given)
            gradients: list[Tensor | None] = [None, None]
            gradients[index] = results[index].cos()
            found = launch.backward(given, results, saved, gradients, {})
            zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
            expected = launch.backward(given, results, saved, zeros, {})
            assert all(torch.equal(found[name], expected[name]) for name in case.tensors)


def test_launches_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three launches forward, and four backward; a sum over the heads of a group makes them eight."""
    launched: list[Any] = []
    monkeypatch.setattr(launch, "launch", lambda kernel, *_: launched.append(kernel))
    for sizes, decays, erases in (
        ((64, 2, 1, 4, 4, 32, 32), "scalar", "rates"),
        ((64, 2, 1, 2, 2, 128, 128), "vector", "vectors"),
        ((64, 2, 1, 1, 4, 64, 64), "scalar", "keeps"),
    ):
        given = delta_scan.Arguments(**Case(sizes, decays, erases).arguments())
        launched.clear()
        results, saved = launch.forward(given)
        launch.backward(given, results, saved, results, {})
        assert len(launched) == 7
        used = sum(each.numel() for each in (*given, *results) if isinstance(each, Tensor))
        assert sum(each.numel() for each in saved) <= 3 * used


def test_wider_keys_run_in_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "forward", None)
    given = Case((2, 1, 1, 1, 1, LARGEST_KEY + 1, 1), "none", "keeps").arguments()
    if ON_GPU:
        assert torch.equal(delta_scan(**given)[0], delta_scan.naive(**given)[0])
    assert delta_scan.supports is not None
    meta = {name: each.to("meta") if isinstance(each, Tensor) else each for name, each in given.items()}
    assert not delta_scan.supports(delta_scan.Arguments(**meta))


CELLS = ["DeltaNet", "DeltaProduct", "GatedDeltaNet", "GatedDeltaNet2", "GLA", "HGRN2", "KDA", "Mamba2", "Mamba3"]
CELLS += ["MLSTM", "RWKV7"]


@pytest.mark.named("DeltaProduct", "GLA")
@pytest.mark.parametrize("name", CELLS)
def test_cells_equal_their_loop(name: str) -> None:
    cell: Any = getattr(gyral, f"{name}Cell")(4, 6, heads=2)
    check_chosen_on_a_gpu(cell)
    check_cell(cell, rtol=1e-3, atol=2e-5)
