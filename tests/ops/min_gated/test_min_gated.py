"""The kernel of `gyral.ops.min_gated` on the CPU against the equations in numpy and the scan in plain torch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.ops.min_gated import KERNELS, min_gated, naive
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

KINDS = pytest.mark.parametrize(
    ("gates", "ragged", "resets"),
    [(gates, ragged, resets) for gates in (1, 2) for ragged in (False, True) for resets in (False, True)],
)
SIZES = ((1, 1, 1), (7, 5, 3), (4, 2, 16), (5, 3, 17), (3, 4, 33), (2, 9, 64))  # T, B, N


def drawn(steps: int, batch: int, size: int, gates: int) -> list[Tensor]:
    """Return projected inputs and the state before the first step."""
    projected = 2 * torch.randn(steps, batch, (1 + gates) * size, dtype=torch.float64)
    return [projected, torch.randn(batch, size, dtype=torch.float64)]


def plain(projected: Tensor, h0: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    return naive.min_gated(projected, h0, options["lengths"], options["starts"])


def in_numpy(tensors: list[Tensor], options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equations, one row and one step at a time."""

    def sigma(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    projected, final = (tensor.numpy().copy() for tensor in tensors)
    size = final.shape[1]
    outputs = np.zeros((*projected.shape[:2], size))
    for row in range(len(final)):
        for time in range(len(projected) if options["lengths"] is None else int(options["lengths"][row])):
            c, *gates = np.split(projected[time, row], projected.shape[2] // size)
            z = sigma(gates[0]) if len(gates) == 1 else sigma(gates[1]) / (sigma(gates[0]) + sigma(gates[1]))
            before = 0 if options["starts"] is not None and options["starts"][time, row] else final[row]
            outputs[time, row] = final[row] = (1 - z) * before + z * np.where(c >= 0, c + 0.5, sigma(c))
    return outputs, final


@KINDS
def test_values_and_gradients_are_those_of_the_plain_scan(gates: int, ragged: bool, resets: bool) -> None:
    for sizes in SIZES:
        tensors, options = drawn(*sizes, gates), masks(*sizes[:2], ragged, resets)
        truth = results(plain, tensors, options, torch.float64)
        for found, expected in zip(truth, in_numpy(tensors, options), strict=False):
            np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)
        assert_close(results(min_gated, tensors, options, torch.float64), truth, 1e-12)
        assert_close(results(min_gated, tensors, options, torch.float32), truth, 1e-5)


@KINDS
def test_no_uninitialized_memory_is_read(
    monkeypatch: pytest.MonkeyPatch, gates: int, ragged: bool, resets: bool
) -> None:
    tensors, options = drawn(6, 4, 5, gates), masks(6, 4, ragged, resets)
    expected = results(min_gated, tensors, options, torch.float64)
    assert poison(monkeypatch) == []
    assert_close(results(min_gated, tensors, options, torch.float64), expected, 0.0)


@for_each("gates", [1, 2])
def test_results_do_not_depend_on_the_number_of_threads(gates: int) -> None:
    tensors, options = drawn(9, 7, 5, gates), masks(9, 7, True, True)
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(results(min_gated, tensors, options, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert_close(found[0], found[1], 0.0)
    assert_close(found[0], found[2], 0.0)


@for_each("gates", [1, 2])
@for_each("dtype", [torch.float32, torch.float64])
def test_saturated_gates_are_exact(gates: int, dtype: torch.dtype) -> None:
    large = torch.tensor([60.0, -60.0, 0.0, 80.0, -80.0], dtype=dtype)
    projected = torch.cartesian_prod(*[large] * (1 + gates)).mT.flatten().view(1, 1, -1)
    tensors = [projected, torch.randn(1, len(large) ** (1 + gates), dtype=dtype)]
    options = masks(1, 1, False, False)
    truth = results(plain, tensors, options, torch.float64)
    assert_close(results(min_gated, tensors, options, dtype), truth, 1e-6 if dtype == torch.float32 else 1e-12)


@for_each("gates", [1, 2])
def test_extreme_gates_stay_finite(gates: int) -> None:
    for value in (-1e4, 1e4):
        for dtype in (torch.float32, torch.float64):
            tensors = [torch.full((3, 2, (1 + gates) * 4), value), torch.zeros(2, 4)]
            assert all(found.isfinite().all() for found in results(min_gated, tensors, {}, dtype))


def test_any_memory_layout_and_an_empty_batch() -> None:
    projected, h0 = drawn(5, 4, 3, 1)
    strided = [tensor.mT.contiguous().mT for tensor in (projected, h0)]
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(min_gated(*strided), min_gated(projected, h0), rtol=0, atol=0)
    outputs, final = min_gated(projected[:, :0], h0[:0])
    assert outputs.shape == (5, 0, 3)
    assert final.shape == (0, 3)


@for_each("gates", [1, 2])
def test_second_derivatives_and_compiled_code(gates: int) -> None:
    given = [tensor.requires_grad_() for tensor in drawn(4, 2, 2, gates)]
    options = masks(4, 2, True, True)

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return min_gated(*tensors, **options)

    assert torch.autograd.gradcheck(run, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*given), run(*given))
