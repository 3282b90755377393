"""The Triton kernels of fast weights and WeiNet against plain torch in float64: on a GPU, else interpreted."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor
from torch.utils._pytree import tree_map_only

from gyral.cells.fast_weights import FastWeightsCell
from gyral.cells.weinet import WeiNetCell
from gyral.nn.recurrent import Recurrent
from gyral.ops.fast_weights import KINDS, LARGEST, OPERATOR, unsupported_reason
from gyral.ops.fast_weights.triton import launch
from gyral.ops.operator import KernelUnavailableError
from tests.helpers.triton import DEVICE, ON_GPU, kernels_of
from tests.ops.contract import Case, Named, error
from tests.ops.fast_weights.test_fast_weights import CONTRACT

# of the float32 loop, the error may be several times as large: a gradient through many normalizations amplifies it
TOLERANCE, FACTOR = (1e-5 if ON_GPU else 2e-6), 10
DECAYS = (0.95, 1.0, 0.3, 0.0)


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(launch, "CHUNKS", {"relu": 4, "tanh": 2, "weinet": 2})
    with kernels_of(OPERATOR):
        yield


def read_in_parts(monkeypatch: pytest.MonkeyPatch, on_chip: bool) -> None:
    """Have the kernels read matrices of any size in parts, A in the forward pass only if it is not `on_chip`."""
    monkeypatch.setattr(launch, "RESIDENT", 8)
    monkeypatch.setattr(launch, "ON_CHIP", 1000 if on_chip else 8)
    monkeypatch.setattr(launch, "TILE", 128)


def make(steps: int, batch: int, size: int, ragged: bool = False, resets: bool = False, **kind: Any) -> Case:
    """Return a case whose numbers are those of float32."""
    case = CONTRACT.case(
        (steps, batch, size), {"inner_steps": 1, "keep": "none", "drop": False, **kind}, ragged, resets
    )
    case.tensors = {name: tensor.float().double() for name, tensor in case.tensors.items()}
    return case


def run(**given: Any) -> Any:
    """Run the kernels on their device, and return the results on the CPU."""
    on_device = {
        name: value.to(DEVICE) if isinstance(value, Tensor) and value.dim() > 0 else value
        for name, value in given.items()
    }
    return tree_map_only(Tensor, Tensor.cpu, CONTRACT.run(**on_device))


def check(case: Case) -> dict[str, Tensor]:
    """Compare the kernels with plain torch; return their results."""
    found, expected = case.results(run, torch.float32), case.results(CONTRACT.plain)
    plain = case.results(CONTRACT.plain, torch.float32)
    usual = max(error(plain[name], tensor) for name, tensor in expected.items())
    for name, tensor in expected.items():
        size = error(found[name], tensor)
        assert size <= max(TOLERANCE, FACTOR * usual), f"{case}: {name}: {size:.1e}, that of the loop is {usual:.1e}"
    if case.options["lengths"] is not None:
        assert not found["result 0"][case.beyond].any()
        assert not found["gradient of x"][case.beyond].any()
    return found


SEVERAL: list[Named] = [
    {"kind": "relu", "sizes": (6, 2, 5), "ragged": True, "resets": True, "keep": "mask", "drop": True},
    {"kind": "tanh", "sizes": (3, 2, 3), "inner_steps": 2, "keep": "mean", "decay": 0.0},
    {"kind": "weinet", "sizes": (5, 2, 5), "ragged": True, "resets": True, "keep": "mask", "drop": True},
    {"kind": "weinet", "sizes": (3, 1, 17), "norm": False},
]
ONE: list[Named] = [{"kind": "relu", "sizes": (1, 1, 2)}, {"kind": "weinet", "sizes": (1, 2, 2)}]
STREAMED: list[Named] = [
    {"kind": "tanh", "sizes": (4, 1, 9), "ragged": True, "resets": True, "inner_steps": 2, "drop": True},
    {"kind": "weinet", "sizes": (3, 1, 9), "ragged": True, "resets": True, "drop": True},
]


def make_named(sizes: tuple[int, int, int], **options: Any) -> Case:
    return make(*sizes, **options)


@pytest.mark.parametrize("given", [*ONE, *SEVERAL], ids=str)
def test_kernels_equal_plain_torch(given: Named) -> None:
    check(make_named(**given))


@pytest.mark.parametrize("on_chip", [True, False])
@pytest.mark.parametrize("given", STREAMED, ids=str)
def test_matrices_that_are_read_in_parts(given: Named, on_chip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_parts(monkeypatch, on_chip)
    check(make_named(**given))


@pytest.mark.slow
@pytest.mark.parametrize("masked", [*product((False, True), repeat=2)])
@pytest.mark.parametrize("kind", KINDS)
def test_options_crossed(kind: str, masked: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    others = product(("none", "mask", "mean"), (False, True), ((6, 2, 5), (3, 1, 17)))
    for index, (keep, drop, sizes) in enumerate(others):
        if index % 4 > 1:
            read_in_parts(monkeypatch, index % 4 == 2)
        options = {"kind": kind, "keep": keep, "drop": drop, "inner_steps": 1 + index % 3}
        check(make(*sizes, *masked, **options, decay=DECAYS[index % 4], norm=index % 2 == 0))


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 100, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_large_matrices(kind: str, size: int) -> None:
    check(make(3, 1, size, kind=kind, resets=True))


def test_without_gradients_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, on_chip in (("relu", True), ("weinet", True), ("weinet", False)):
        if not on_chip:
            read_in_parts(monkeypatch, on_chip)
        case = make(3, 1, 4, kind=kind, resets=True)
        with torch.no_grad():
            values = case.values(run, case.leaves(torch.float32))
        results = case.results(run, torch.float32)
        assert all(torch.equal(value.double(), results[f"result {index}"]) for index, value in enumerate(values))
    monkeypatch.undo()
    given = OPERATOR.Arguments("weinet", *[torch.zeros(2, 2, 2)] * 7, has_gradient=False, **dict.fromkeys(
        ("keep", "drop", "lengths", "starts", "epsilon", "decay", "rate", "inner_steps")
    ))  # fmt: skip
    assert launch.allocate(given)[1] == [None, None]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_nothing_before_a_start_is_seen_after_it() -> None:
    for kind in ("relu", "weinet"):
        case = make(5, 2, 3, kind=kind)
        case.options["starts"] = torch.tensor([False, False, False, True, False]).unsqueeze(1).expand(5, 2).contiguous()
        expected = case.results(run, torch.float32)
        case.tensors["a0"][0] = case.tensors["x"][1, 0] = torch.nan
        found = case.results(run, torch.float32)
        assert found["result 0"][1:3, 0].isnan().any(1).all()
        for name, tensor in (("result 0", found["result 0"][3:]), ("gradient of x", found["gradient of x"][3:])):
            assert torch.equal(tensor, expected[name][3:])
        assert torch.equal(found["result 2"], expected["result 2"])


def test_no_rows() -> None:
    for kind in ("relu", "weinet"):
        results = make(2, 0, 3, kind=kind).results(run, torch.float32)
        assert not any(tensor.any() for tensor in results.values())


def test_each_result_may_be_differentiated_alone() -> None:
    for kind in ("relu", "weinet"):
        case = make(2, 1, 2, kind=kind)
        leaves = {name: each.to(DEVICE) for name, each in case.leaves(torch.float32).items()}
        given = [torch.zeros_like(value) for value in case.values(leaves=leaves)]
        for index in range(3):
            values = case.values(leaves=leaves)
            by = values[index].detach().cos()
            alone = torch.autograd.grad(values[index], [*leaves.values()], by, retain_graph=True)
            others = [by if place == index else zeros for place, zeros in enumerate(given)]
            together = torch.autograd.grad(values, [*leaves.values()], others)
            assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


@pytest.mark.parametrize("make_cell", [FastWeightsCell, WeiNetCell])
def test_layers_equal_the_reference(make_cell: Any) -> None:
    cell = make_cell(3, 5, zoneout=0.2).to(DEVICE)
    inputs, lengths = torch.randn(4, 2, 3, device=DEVICE), torch.tensor([4, 2])
    starts = (torch.rand(4, 2) < 0.3).to(DEVICE)
    found = []
    for backend in ("fused", "reference"):
        layer = Recurrent(lambda _: cell, 3, backend=backend).eval()
        leaf = inputs.clone().requires_grad_()
        outputs, (final,) = layer(leaf, None, lengths, starts)
        loss = sum(tensor.cos().sum() for tensor in (outputs, *final))
        found.append([outputs, *final, *torch.autograd.grad(loss, [leaf, *cell.parameters()])])
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= 1e-5 * max(1.0, other.norm())


def test_one_launch_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    run_kernel, launched = launch.launch, []
    monkeypatch.setattr(
        launch, "launch", lambda kernel, *given: (launched.append(kernel.__name__), run_kernel(kernel, *given))
    )
    for kind, name in (("tanh", "fast_weights"), ("weinet", "weinet")):
        make(3, 1, 3, kind=kind).results(run, torch.float32)
        assert launched == [f"forward_{name}", f"backward_{name}"]
        launched.clear()


def test_too_many_units_are_refused() -> None:
    for size, reason in (
        (LARGEST, "no kernels for meta"),
        (LARGEST + 1, f"at most {LARGEST} units, not {LARGEST + 1}"),
    ):
        assert str(unsupported_reason(torch.empty(0, device="meta"), size)).endswith(reason)
    with pytest.raises(KernelUnavailableError, match=rf"support at most {LARGEST} units, not {LARGEST + 1}$"):
        make(1, 1, LARGEST + 1, kind="relu").results(run, torch.float32)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
@pytest.mark.parametrize("size", [12, 50, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_again(kind: str, size: int) -> None:
    case = make(40, 64, size, ragged=True, resets=True, kind=kind, keep="mask")
    expected = check(case)
    for _ in range(3):
        found = case.results(run, torch.float32)
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
