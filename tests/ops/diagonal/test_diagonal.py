"""The kernel of `gyral.ops.diagonal` on the CPU against the recurrence in numpy and the scan in plain torch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.ops.diagonal import KERNELS, diagonal_scan, naive
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

CASES = [
    (is_complex, is_constant, ragged, resets)
    for is_complex in (False, True)
    for is_constant in (False, True)
    for ragged, resets in ((False, False), (True, False), (False, True), (True, True))
]
KINDS = pytest.mark.parametrize(("is_complex", "is_constant", "ragged", "resets"), CASES)
SIZES = ((1, 1, 1), (7, 5, 3), (4, 2, 16), (5, 3, 17), (3, 4, 33), (2, 9, 64))  # T, B, N


def drawn(steps: int, batch: int, size: int, is_complex: bool, is_constant: bool) -> list[Tensor]:
    """Return values, decay and the state before the first step."""
    width = 2 * size if is_complex else size
    shape = (width,) if is_constant else (steps, batch, width)
    decay = 1.4 * torch.rand(shape, dtype=torch.float64) - 0.7
    values, h0 = (torch.randn(*of, width, dtype=torch.float64) for of in ((steps, batch), (batch,)))
    return [values, decay, h0]


def plain(values: Tensor, decay: Tensor, h0: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    return naive.diagonal_scan(values, decay, h0, options["lengths"], options["starts"], options["is_complex"])


def in_numpy(tensors: list[Tensor], options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equation, one row and one step at a time."""

    def number(tensor: Tensor) -> np.ndarray:
        array = tensor.detach().numpy()
        return np.stack(np.split(array, 2, -1), -1) @ [1, 1j] if options["is_complex"] else array

    values, decay, final = map(number, tensors)
    decay, final, outputs = np.broadcast_to(decay, values.shape), final.copy(), np.zeros_like(values)
    lengths, starts = options["lengths"], options["starts"]
    for row in range(values.shape[1]):
        for time in range(len(values) if lengths is None else int(lengths[row])):
            before = 0 if starts is not None and starts[time, row] else final[row]
            outputs[time, row] = final[row] = decay[time, row] * before + values[time, row]
    if options["is_complex"]:
        return tuple(np.concatenate((array.real, array.imag), -1) for array in (outputs, final))
    return outputs, final


@KINDS
def test_values_and_gradients_are_those_of_the_plain_scan(
    is_complex: bool, is_constant: bool, ragged: bool, resets: bool
) -> None:
    for sizes in SIZES:
        tensors = drawn(*sizes, is_complex, is_constant)
        options = {**masks(*sizes[:2], ragged, resets), "is_complex": is_complex}
        truth = results(plain, tensors, options, torch.float64)
        for found, expected in zip(truth, in_numpy(tensors, options), strict=False):
            np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)
        assert_close(results(diagonal_scan, tensors, options, torch.float64), truth, 1e-12)
        assert_close(results(diagonal_scan, tensors, options, torch.float32), truth, 1e-5)


@KINDS
def test_no_uninitialized_memory_is_read(
    monkeypatch: pytest.MonkeyPatch, is_complex: bool, is_constant: bool, ragged: bool, resets: bool
) -> None:
    tensors = drawn(6, 4, 5, is_complex, is_constant)
    options = {**masks(6, 4, ragged, resets), "is_complex": is_complex}
    expected = results(diagonal_scan, tensors, options, torch.float64)
    assert poison(monkeypatch) == []
    assert_close(results(diagonal_scan, tensors, options, torch.float64), expected, 0.0)


@for_each("is_constant", [False, True])
def test_results_do_not_depend_on_the_number_of_threads(is_constant: bool) -> None:
    tensors, options = drawn(9, 7, 5, True, is_constant), {**masks(9, 7, True, True), "is_complex": True}
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(results(diagonal_scan, tensors, options, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert_close(found[0], found[1], 0.0)
    assert_close(found[0], found[2], 0.0)


def test_any_memory_layout_and_an_empty_batch() -> None:
    values, decay, h0 = drawn(5, 4, 3, False, False)
    expected = results(diagonal_scan, [values, decay, h0], {}, torch.float64)
    strided = [tensor.mT.contiguous().mT for tensor in (values, decay, h0)]
    assert not strided[0].is_contiguous()
    assert_close([*diagonal_scan(*strided)], expected[:2], 0.0)
    outputs, final = diagonal_scan(values[:, :0], decay[:, :0], h0[:0])
    assert outputs.shape == (5, 0, 3)
    assert final.shape == (0, 3)


def test_a_reset_forgets_infinity() -> None:
    values, decay, h0 = drawn(4, 1, 3, False, False)
    values[0] = torch.inf
    starts = torch.tensor([[False], [True], [False], [False]])
    assert diagonal_scan(values, decay, h0, starts=starts)[0][1:].isfinite().all()


def test_a_decay_close_to_one_is_kept_in_float32() -> None:
    steps = 2000
    outputs, _ = diagonal_scan(torch.zeros(steps, 1, 1), torch.full((1,), 0.999), torch.ones(1, 1))
    torch.testing.assert_close(outputs[-1].item(), 0.999**steps, rtol=1e-4, atol=0)


def test_tensors_of_several_dtypes_are_refused() -> None:
    values, decay, h0 = drawn(2, 1, 1, False, False)
    with pytest.raises(TypeError, match="dtype"):
        diagonal_scan(values.float(), decay, h0)


@for_each("is_complex", [False, True])
def test_second_derivatives_and_compiled_code(is_complex: bool) -> None:
    given = [tensor.requires_grad_() for tensor in drawn(4, 2, 2, is_complex, False)]
    options = {**masks(4, 2, True, True), "is_complex": is_complex}

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return diagonal_scan(*tensors, **options)

    assert torch.autograd.gradcheck(run, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*given), run(*given))
