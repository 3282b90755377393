"""The kernel of `gyral.ops.selective_scan` on the CPU against the equations in numpy and the scan in plain torch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.ops.selective_scan import KERNELS, naive, selective_scan
from tests.helpers.kernels import skip_without
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

MASKS = pytest.mark.parametrize("ragged", [False, True]), pytest.mark.parametrize("resets", [False, True])
# T, B, D, N: one step, one row, whole chunks of 16 steps, one step more, and every remainder of a vector
SIZES = ((1, 1, 1, 1), (7, 5, 3, 2), (16, 2, 16, 4), (17, 3, 17, 3), (40, 4, 9, 5), (33, 2, 33, 1))


def drawn(steps: int, batch: int, channels: int, size: int) -> list[Tensor]:
    """Return u, Δ, A, B, C and the state before the first step."""
    shapes = (steps, batch, channels), (steps, batch, channels), (channels, size), *[(steps, batch, size)] * 2
    u, delta, a, b, c = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return [u, delta.exp() / 4, -a.exp(), b, c, torch.randn(batch, channels, size, dtype=torch.float64)]


def plain(*tensors: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    return naive.selective_scan(*tensors, options["lengths"], options["starts"])


def in_numpy(tensors: list[Tensor], options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equations, one row and one step at a time."""
    u, delta, a, b, c, final = (tensor.numpy().copy() for tensor in tensors)
    outputs = np.zeros_like(u)
    for row in range(u.shape[1]):
        for time in range(len(u) if options["lengths"] is None else int(options["lengths"][row])):
            if options["starts"] is not None and options["starts"][time, row]:
                final[row] = 0
            drive = np.outer(delta[time, row] * u[time, row], b[time, row])
            final[row] = np.exp(delta[time, row][:, None] * a) * final[row] + drive
            outputs[time, row] = final[row] @ c[time, row]
    return outputs, final


@MASKS[0]
@MASKS[1]
def test_values_and_gradients_are_those_of_the_plain_scan(ragged: bool, resets: bool) -> None:
    for sizes in SIZES:
        tensors, options = drawn(*sizes), masks(*sizes[:2], ragged, resets)
        truth = results(plain, tensors, options, torch.float64)
        for found, expected in zip(truth, in_numpy(tensors, options), strict=False):
            np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)
        assert_close(results(selective_scan, tensors, options, torch.float64), truth, 1e-12)
        assert_close(results(selective_scan, tensors, options, torch.float32), truth, 1e-5)


@MASKS[0]
@MASKS[1]
def test_no_uninitialized_memory_is_read(monkeypatch: pytest.MonkeyPatch, ragged: bool, resets: bool) -> None:
    tensors, options = drawn(35, 4, 5, 3), masks(35, 4, ragged, resets)
    expected = results(selective_scan, tensors, options, torch.float64)
    assert poison(monkeypatch) == []
    assert_close(results(selective_scan, tensors, options, torch.float64), expected, 0.0)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    tensors, options = drawn(20, 7, 5, 3), masks(20, 7, True, True)
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(results(selective_scan, tensors, options, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert_close(found[0], found[1], 0.0)
    assert_close(found[0], found[2], 0.0)


def test_any_memory_layout_and_an_empty_batch() -> None:
    tensors = drawn(5, 4, 3, 2)
    strided = [tensor.mT.contiguous().mT for tensor in tensors]
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(selective_scan(*strided), selective_scan(*tensors), rtol=0, atol=0)
    u, delta, a, b, c, h0 = tensors
    outputs, final = selective_scan(u[:, :0], delta[:, :0], a, b[:, :0], c[:, :0], h0[:0])
    assert outputs.shape == (5, 0, 3)
    assert final.shape == (0, 3, 2)


def test_a_second_backward_pass_over_the_same_graph() -> None:
    tensors = [tensor.requires_grad_() for tensor in drawn(20, 2, 3, 2)]
    outputs, _ = selective_scan(*tensors)
    first, second = (torch.autograd.grad(outputs.sum(), tensors, retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_second_derivatives_and_compiled_code() -> None:
    given = [tensor.requires_grad_() for tensor in drawn(4, 2, 2, 2)]
    options = masks(4, 2, True, True)

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return selective_scan(*tensors, **options)

    assert torch.autograd.gradcheck(run, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*given), run(*given))
