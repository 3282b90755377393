"""The delta rule by flash-linear-attention's functions, where the package is installed."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import fla
from gyral.ops.delta import delta_scan
from gyral.ops.operator import KernelUnavailableError, NotReady, load_or_reason
from tests.helpers import goldens
from tests.helpers.loops import for_each
from tests.ops.contract import EVERY_MASK, Case, assert_close
from tests.ops.delta.test_delta import CONTRACT, case_of, step_by_step

ON_GPU = torch.cuda.is_available()
# T, B, n, G, H, K, V; the decay; whether it erases
CASES: dict[str, tuple[tuple[int, ...], str, bool | str]] = {
    "linear_attention": ((9, 3, 1, 2, 2, 5, 3), "none", False),
    "mamba2": ((9, 3, 1, 1, 4, 5, 3), "scalar", False),
    "gla": ((9, 3, 1, 2, 2, 5, 3), "vector", False),
    "gla_with_one_channel": ((9, 3, 1, 2, 2, 1, 3), "vector", False),
    "delta_net": ((9, 3, 1, 2, 2, 5, 3), "none", True),
    "gated_delta_net": ((9, 3, 1, 2, 2, 5, 17), "scalar", True),
    "delta_product_3": ((9, 3, 3, 2, 2, 5, 3), "none", True),
    "gated_delta_product_2": ((9, 3, 2, 2, 2, 5, 3), "scalar", True),
    "kda": ((9, 3, 1, 2, 2, 17, 3), "vector", True),
    "gdn2": ((9, 3, 1, 2, 2, 5, 3), "vector", True),
    "rwkv7": ((9, 3, 2, 2, 2, 5, 3), "vector", True),
    "groups_of_keys": ((9, 3, 2, 2, 4, 5, 3), "scalar", True),
    "several_chunks_without_erasing": ((70, 1, 1, 1, 1, 5, 3), "vector", False),
    "several_chunks": ((20, 1, 2, 1, 1, 5, 3), "vector", True),
    "unit_vectors_and_rates": ((9, 3, 2, 1, 2, 5, 3), "scalar", "rates"),
    "one_step": ((1, 2, 1, 1, 1, 5, 3), "scalar", True),
}
EACH_CASE = pytest.mark.parametrize("case", CASES)


def operands(name: str, *masked: bool) -> Case:
    case = case_of(*CASES[name], *masked)
    given = case.tensors
    if name == "gdn2":  # each channel has its own rate of erasing
        given["erase"] = torch.rand_like(given["k"]) * given["k"]
    if name == "rwkv7":  # two micro-steps, the first of which reads the memory before its decay
        given["decay"] = given["decay"].clamp(min=-0.606)
        given["erase"][:, :, 0] = -given["k"][:, :, 0] * (-given["decay"]).exp()
        given["erase"][:, :, 1] = given["v"][:, :, 0] = 0
    return case


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run this module of kernels for tensors on a CPU, too, of any dtype."""
    monkeypatch.setitem(delta_scan.kernels, "cpu", fla.__name__)
    monkeypatch.setattr(fla, "DTYPES", (torch.float32, torch.float64))
    load_or_reason.cache_clear()
    yield
    load_or_reason.cache_clear()


def require_package() -> fla.Functions:
    try:
        return fla.load()
    except ImportError as error:
        pytest.skip(f"fla-core is not installed: {error}")


def in_segments(run: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a function with the arguments of a kernel for one of whole rows of tensors (B, T, …) that has no scale."""

    def segments(
        *,
        scale: float,
        initial_state: Tensor,
        output_final_state: bool,
        cu_seqlens: Tensor | None = None,
        **tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        assert scale == 1.0
        assert output_final_state
        tensors["q"] = tensors["q"] * tensors["q"].shape[-1] ** 0.5
        if cu_seqlens is None:
            return run(**tensors, initial_state=initial_state, output_final_state=True)
        parts = []
        for index, (begin, end) in enumerate(itertools.pairwise(cu_seqlens)):
            part = {name: tensor[:, begin:end] for name, tensor in tensors.items()}
            parts.append(run(**part, initial_state=initial_state[index : index + 1], output_final_state=True))
        outputs, states = zip(*parts, strict=True)
        return torch.cat(outputs, dim=1), torch.cat(states)

    return segments


@pytest.fixture
def naive_functions(monkeypatch: pytest.MonkeyPatch, on_cpu: None) -> None:
    """Put the package's naive functions in place of its kernels, in float64."""
    require_package()
    from fla.ops.generalized_delta_rule.dplr import naive as dplr
    from fla.ops.gla import naive as gla

    monkeypatch.setattr(Tensor, "float", Tensor.double)
    monkeypatch.setattr(gla, "torch", SimpleNamespace(**{**vars(torch), "float32": torch.float64}))

    def dplr_recurrence(
        q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, gk: Tensor, **states: Any
    ) -> tuple[Tensor, Tensor]:
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v, a, b, gk)]
        outputs, state = dplr.dplr_recurrence(*heads_first, **states)
        return outputs.transpose(1, 2), state

    def recurrent_gla(g: Tensor, **others: Any) -> tuple[Tensor, Tensor]:
        return gla.naive_recurrent_gla(gk=g, **others)

    functions = fla.Functions(in_segments(recurrent_gla), in_segments(dplr_recurrence))
    monkeypatch.setattr(fla, "load", lambda: functions)


@for_each("case", CASES)
@for_each("masked", EVERY_MASK)
def test_the_naive_functions_equal_single_steps(
    case: str, masked: tuple[bool, bool], naive_functions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = operands(case, *masked)
    expected = given.results(step_by_step)
    assert_close(given.results(CONTRACT.plain), expected, 1e-12)
    monkeypatch.setattr(fla.naive, "delta_scan", None)
    assert_close(given.results(), expected, 1e-12)


@pytest.mark.parametrize(
    "name", ["delta_net", "gated_delta_net", "gated_delta_product_2", "kda", "gdn2", "gla", "hgrn2", "mamba2", "rwkv7"]
)
def test_cells_equal_their_authors_code(
    name: str, naive_functions: None, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    forward = fla.forward
    monkeypatch.setattr(fla, "forward", lambda a: calls.append(name) or forward(a))
    assert goldens.check(golden / "recurrences" / f"{name}.npz") < 1e-10
    assert calls


def test_second_derivatives_equal_those_of_plain_torch(naive_functions: None) -> None:
    case = case_of(CONTRACT.tiny, "vector", True, True, True)
    case.check_differences()
    case.check_compiled()


def test_keys_that_are_too_large_and_an_empty_batch(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(fla, "load", lambda: None)
    for sizes in ((2, 1, 1, 1, 1, 257, 1), (2, 0, 1, 1, 1, 3, 2)):
        case = case_of(sizes, "scalar", True)
        assert_close(case.results(), case.results(CONTRACT.plain), 0.0)


class Position(int):
    """A number of a loop of a kernel, which a compiled loop would have as a tensor."""

    def to(self, dtype: Any) -> Any:
        import triton.language as tl

        return tl.full([], int(self), dtype)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let the kernels run on a GPU, or in Triton's interpreter, which lacks some of what they use."""
    require_package()
    from triton.runtime import autotuner, interpreter

    # nothing is measured: the first configuration runs
    monkeypatch.setattr(autotuner.Autotuner, "do_bench", property(lambda self: lambda *given, **others: [1.0] * 3))
    if ON_GPU:
        return
    request.getfixturevalue("on_cpu")
    patch_tensor = interpreter._patch_lang_tensor

    def with_index(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def positions(*bounds: Any) -> Iterator[Position]:
        return map(Position, range(*(int(bound) for bound in bounds)))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", with_index)
    for name, module in list(sys.modules.items()):
        if name.startswith("fla.ops."):
            monkeypatch.setattr(module, "range", positions, raising=False)
            monkeypatch.setattr(module, "IS_GATHER_SUPPORTED", False, raising=False)


def run_kernels(**given: Any) -> tuple[Tensor, ...]:
    device = "cuda" if ON_GPU else "cpu"
    given = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in given.items()}
    assert delta_scan.unsupported_reason(given["q"]) is None
    return tuple(tensor.cpu() for tensor in delta_scan(**given))


@pytest.mark.slow
@EACH_CASE
@pytest.mark.parametrize("masked", [False, True])
def test_the_kernels_equal_single_steps(case: str, masked: bool, kernels: None) -> None:
    given = operands(case, masked, masked)
    assert_close(given.results(run_kernels, torch.float32), given.results(step_by_step), 2e-5)


@pytest.mark.parametrize("rate", [30.0, 1000.0])
@pytest.mark.parametrize("erases", [False, True])
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")  # in the interpreter
def test_the_kernels_are_correct_for_decays_beyond_the_largest_exponent(
    erases: bool, rate: float, kernels: None
) -> None:
    case = case_of((9, 1, 1, 1, 1, 3, 2), "vector", erases)
    case.tensors["decay"][::2] = -rate
    case.tensors["decay"][..., 0] = -1e-3
    found = case.results(run_kernels, torch.float32)
    assert all(tensor.isfinite().all() for tensor in found.values())
    assert_close(found, case.results(step_by_step), 2e-6 * rate)


@pytest.mark.parametrize(("setting", "precision"), [("highest", "ieee"), ("high", None)])
def test_kernels_multiply_in_tf32_only_if_torch_may(setting: str, precision: str | None) -> None:
    knobs = pytest.importorskip("triton").knobs
    before, outside = torch.get_float32_matmul_precision(), knobs.language.fp32_default
    try:
        torch.set_float32_matmul_precision(setting)
        with fla.precision():
            assert knobs.language.fp32_default == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert knobs.language.fp32_default == outside


def of_gpu(dtype: torch.dtype) -> Any:
    """Return what the operator asks of a tensor, as of one on a GPU."""
    return SimpleNamespace(device=torch.device("cuda"), dtype=dtype)


def test_a_gpu_has_the_kernels_if_the_package_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    load_or_reason.cache_clear()
    monkeypatch.setitem(delta_scan.kernels, "cuda", fla.__name__)
    monkeypatch.setattr(fla, "load", lambda: None)
    assert delta_scan.unsupported_reason(of_gpu(torch.float32)) is None
    for dtype in (torch.float64, torch.bfloat16):
        assert delta_scan.unsupported_reason(of_gpu(dtype)) == f"there are no kernels for {dtype} on cuda"
    load_or_reason.cache_clear()


def test_plain_torch_runs_without_the_package(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ModuleNotFoundError("No module named 'fla'")

    monkeypatch.setitem(delta_scan.kernels, "cuda", fla.__name__)
    monkeypatch.setattr(fla, "load", load)
    reason = "flash-linear-attention cannot be used: No module named 'fla'"
    assert delta_scan.unsupported_reason(of_gpu(torch.float32)) == reason
    case = case_of((5, 2, 2, 1, 2, 3, 2), "vector", True, True, True)
    assert_close(case.results(), case.results(CONTRACT.plain), 0.0)


def test_a_version_that_was_not_checked_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    fla.load.cache_clear()
    monkeypatch.setitem(sys.modules, "fla", SimpleNamespace(__version__="0.5.1"))
    with pytest.raises(KernelUnavailableError, match=r"^flash-linear-attention cannot be used: it has version 0\.5\.1"):
        fla.prepare(torch.device("cuda"))


def test_a_package_that_is_not_installed_is_no_kernel_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    given = fla.__name__, torch.device("cpu"), torch.float32
    monkeypatch.setitem(sys.modules, "fla", None)  # as if it were not installed
    monkeypatch.setattr(fla, "load", fla.load.__wrapped__)
    found = load_or_reason.__wrapped__(*given)
    assert "flash-linear-attention cannot be used" in found
    assert not isinstance(found, NotReady)
    monkeypatch.setitem(sys.modules, "fla", SimpleNamespace(__version__="0.4.1"))
    assert isinstance(load_or_reason.__wrapped__(*given), NotReady)
