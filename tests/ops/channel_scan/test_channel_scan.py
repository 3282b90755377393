"""The kernel of `gyral.ops.channel_scan` on the CPU against the equations in numpy and the scan in plain torch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.ops.channel_scan import KERNELS, channel_scan, naive
from tests.helpers.kernels import skip_without
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

MASKS = pytest.mark.parametrize("ragged", [False, True]), pytest.mark.parametrize("resets", [False, True])
# T, B, N, P: one step, one row, whole chunks of 32 steps, one step more, and whole and partial tiles of 16 channels
SIZES = ((1, 1, 1, 1), (7, 5, 3, 2), (32, 2, 16, 4), (33, 3, 17, 3), (70, 4, 9, 5), (65, 2, 33, 1))


def drawn(steps: int, batch: int, channels: int, size: int) -> list[Tensor]:
    """Return x, λ, w and the state before the first step."""
    radius, angle = torch.rand(channels, size, dtype=torch.float64), 3 * torch.randn(channels, size).double()
    decay = torch.stack((radius * angle.cos(), radius * angle.sin()))
    shapes = (steps, batch, channels), (2, channels, size), (batch, 2, channels, size)
    x, readout, h0 = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return [x, decay, readout, h0]


def plain(*tensors: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    return naive.channel_scan(*tensors, options["lengths"], options["starts"])


def in_numpy(tensors: list[Tensor], options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equations, one row and one step at a time."""
    x, decay, readout, final = (tensor.numpy() for tensor in tensors)
    decay, readout, final = decay[0] + 1j * decay[1], readout[0] + 1j * readout[1], final[:, 0] + 1j * final[:, 1]
    outputs = np.zeros_like(x)
    for row in range(x.shape[1]):
        for time in range(len(x) if options["lengths"] is None else int(options["lengths"][row])):
            if options["starts"] is not None and options["starts"][time, row]:
                final[row] = 0
            final[row] = decay * final[row] + x[time, row][:, None]
            outputs[time, row] = (readout * final[row]).real.sum(1)
    return outputs, np.stack((final.real, final.imag), 1)


@MASKS[0]
@MASKS[1]
def test_values_and_gradients_are_those_of_the_plain_scan(ragged: bool, resets: bool) -> None:
    for sizes in SIZES:
        tensors, options = drawn(*sizes), masks(*sizes[:2], ragged, resets)
        truth = results(plain, tensors, options, torch.float64)
        for found, expected in zip(truth, in_numpy(tensors, options), strict=False):
            np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-11)
        assert_close(results(channel_scan, tensors, options, torch.float64), truth, 1e-12)
        assert_close(results(channel_scan, tensors, options, torch.float32), truth, 2e-5)


@MASKS[0]
@MASKS[1]
def test_no_uninitialized_memory_is_read(monkeypatch: pytest.MonkeyPatch, ragged: bool, resets: bool) -> None:
    tensors, options = drawn(70, 4, 5, 3), masks(70, 4, ragged, resets)
    expected = results(channel_scan, tensors, options, torch.float64)
    assert poison(monkeypatch) == []
    assert_close(results(channel_scan, tensors, options, torch.float64), expected, 0.0)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    tensors, options = drawn(40, 7, 5, 3), masks(40, 7, True, True)
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(results(channel_scan, tensors, options, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert_close(found[0], found[1], 0.0)
    assert_close(found[0], found[2], 0.0)


def test_any_memory_layout_and_an_empty_batch() -> None:
    tensors = drawn(5, 4, 3, 2)
    strided = [tensor.mT.contiguous().mT for tensor in tensors]
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(channel_scan(*strided), channel_scan(*tensors), rtol=0, atol=0)
    x, decay, readout, h0 = tensors
    outputs, final = channel_scan(x[:, :0], decay, readout, h0[:0])
    assert outputs.shape == (5, 0, 3)
    assert final.shape == (0, 2, 3, 2)


def test_second_derivatives_and_compiled_code() -> None:
    given = [tensor.requires_grad_() for tensor in drawn(4, 2, 2, 2)]
    options = masks(4, 2, True, True)

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return channel_scan(*tensors, **options)

    assert torch.autograd.gradcheck(run, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*given), run(*given))
