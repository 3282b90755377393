"""The kernel of `gyral.ops.rotation_scan` on the CPU against equations in numpy and the chunk form in torch."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.ops.rotation_scan import KERNELS, naive, rotation_scan
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

MASKS = pytest.mark.parametrize("ragged", [False, True]), pytest.mark.parametrize("resets", [False, True])
EVERY_MASK = tuple(itertools.product((True, False), repeat=2))  # ragged, resets
ANGLES = for_each("double_angle", [False, True])
# T, B, N, H, d: one step, one row, whole chunks of 64 steps, one step more, full and partly filled heads, an empty
# head, and one, two, three and more than four registers for a row of R
SIZES = (
    *((1, 1, 2, 1, 2), (7, 5, 5, 2, 3), (64, 2, 32, 2, 16), (65, 3, 34, 1, 34), (130, 2, 5, 4, 2)),
    *((66, 1, 130, 1, 130), (10, 2, 48, 1, 48)),
)


def drawn(steps: int, batch: int, size: int, heads: int, width: int) -> list[Tensor]:
    """Return the parts of all steps, one of them zero, a memory and a hidden vector."""
    parts = torch.randn(steps, batch, 4 * size, dtype=torch.float64)
    parts[steps // 2, 0] = 0
    memory = torch.linalg.qr(torch.randn(batch, heads, width, width, dtype=torch.float64))[0]
    return [parts, memory, torch.randn(batch, size, dtype=torch.float64)]


def plain(*tensors: Tensor, **options: Any) -> tuple[Tensor, ...]:
    activation = options.get("activation", "relu")
    return naive.rotation_scan(
        *tensors, options["lengths"], options["starts"], options.get("double_angle", True), activation
    )


def in_numpy(tensors: list[Tensor], options: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """Return outputs, memory and hidden vector: the equations, one row, one step and one head at a time."""
    parts, memory, hidden = (tensor.numpy().copy() for tensor in tensors)
    (steps, batch, _), size, width = parts.shape, hidden.shape[1], memory.shape[2]
    outputs = np.zeros((steps, batch, size))
    for row in range(batch):
        for time in range(steps if options["lengths"] is None else int(options["lengths"][row])):
            if options["starts"] is not None and options["starts"][time, row]:
                memory[row], hidden[row] = np.eye(width), 0
            target, gate, query, embedded = np.split(parts[time, row], 4)
            rotated = np.zeros(size)
            for head in range(memory.shape[1]):
                own = slice(head * width, (head + 1) * width)
                e, tau, q = (np.pad(each[own], (0, width - len(each[own]))) for each in (embedded, target, query))
                if e.any() and tau.any():
                    e, tau = e / np.linalg.norm(e), tau / np.linalg.norm(tau)
                    second = tau if options["double_angle"] else e + tau
                    if np.linalg.norm(second) < 1e-14:  # opposite, as half of the pairs with one number are
                        second = np.eye(width)[np.abs(e).argmin()]
                    second = second / np.linalg.norm(second)
                    for normal in (second, e):
                        memory[row, head] = memory[row, head] @ (np.eye(width) - 2 * np.outer(normal, normal))
                rotated[own] = (memory[row, head] @ q)[: len(rotated[own])]
            keep = 1 / (1 + np.exp(-gate))
            hidden[row] = keep * hidden[row] + (1 - keep) * np.tanh(embedded + rotated)
            outputs[time, row] = hidden[row]
    return outputs, memory, hidden


def check_sizes(sizes: tuple[int, ...], masked: tuple[bool, bool], double_angle: bool) -> None:
    tensors = drawn(*sizes)
    options = {**masks(*sizes[:2], *masked), "double_angle": double_angle, "activation": "tanh"}
    truth = results(plain, tensors, options, torch.float64)
    for found, expected in zip(truth, in_numpy(tensors, options), strict=False):
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)
    assert_close(results(rotation_scan, tensors, options, torch.float64), truth, 1e-10)


@ANGLES
def test_values_and_gradients_are_those_of_the_chunk_form(double_angle: bool) -> None:
    for sizes, masked in zip(SIZES, itertools.cycle(EVERY_MASK), strict=False):
        check_sizes(sizes, masked, double_angle)


@pytest.mark.slow
@ANGLES
def test_all_sizes_with_all_masks(double_angle: bool) -> None:
    for sizes, masked in itertools.product(SIZES, EVERY_MASK):
        check_sizes(sizes, masked, double_angle)


@ANGLES
@for_each("activation", ["relu", "tanh", "sigmoid", "softsign"])
def test_float32_and_every_activation(activation: str, double_angle: bool) -> None:
    tensors = drawn(130, 3, 40, 2, 20)
    options = {**masks(130, 3, True, True), "activation": activation, "double_angle": double_angle}
    truth = results(plain, tensors, options, torch.float64)
    assert_close(results(rotation_scan, tensors, options, torch.float64), truth, 1e-11)
    for run in (rotation_scan, plain):
        assert_close(results(run, tensors, options, torch.float32), truth, 1e-3)


@MASKS[0]
@MASKS[1]
def test_no_uninitialized_memory_is_read(monkeypatch: pytest.MonkeyPatch, ragged: bool, resets: bool) -> None:
    tensors, options = drawn(67, 4, 5, 2, 3), masks(67, 4, ragged, resets)
    expected = results(rotation_scan, tensors, options, torch.float64)
    assert poison(monkeypatch) == []
    assert_close(results(rotation_scan, tensors, options, torch.float64), expected, 0.0)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    tensors, options = drawn(70, 7, 5, 2, 3), masks(70, 7, True, True)
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(results(rotation_scan, tensors, options, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert_close(found[0], found[1], 0.0)
    assert_close(found[0], found[2], 0.0)


def test_any_memory_layout_and_an_empty_batch() -> None:
    tensors = drawn(5, 4, 6, 2, 3)
    strided = [tensor.mT.contiguous().mT for tensor in tensors]
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(rotation_scan(*strided), rotation_scan(*tensors), rtol=0, atol=0)
    parts, memory, h0 = tensors
    outputs, last, hidden = rotation_scan(parts[:, :0], memory[:0], h0[:0])
    assert outputs.shape == (5, 0, 6)
    assert last.shape == (0, 2, 3, 3)
    assert hidden.shape == (0, 6)


def test_a_second_backward_pass_over_the_same_graph() -> None:
    tensors = [tensor.requires_grad_() for tensor in drawn(70, 2, 6, 2, 3)]
    outputs, *_ = rotation_scan(*tensors)
    first, second = (torch.autograd.grad(outputs.sum(), tensors, retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@ANGLES
def test_second_derivatives_and_compiled_code(double_angle: bool) -> None:
    torch.manual_seed(0)
    parts, memory, h0 = drawn(4, 2, 3, 1, 3)
    parts[2, 0] = 1 + torch.rand(12)
    given = [tensor.requires_grad_() for tensor in (parts, memory, h0)]
    options = {**masks(4, 2, True, True), "double_angle": double_angle, "activation": "tanh"}

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        return rotation_scan(*tensors, **options)

    assert torch.autograd.gradcheck(run, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*given), run(*given))
