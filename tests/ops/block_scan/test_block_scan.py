"""The kernel of `gyral.ops.block_scan` on the CPU against the equations in numpy and the scan in plain torch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.ops.block_scan import KERNELS, block_scan, naive
from tests.helpers.kernels import skip_without
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

MASKS = pytest.mark.parametrize("ragged", [False, True]), pytest.mark.parametrize("resets", [False, True])
# T, B, N, b: one step, one row, whole blocks, a block that is not full, blocks of one unit, and one block
SIZES = ((1, 1, 1, 1), (7, 5, 6, 2), (9, 2, 7, 4), (12, 3, 17, 16), (8, 2, 5, 1), (6, 1, 5, 5), (5, 2, 3, 8))


def drawn(steps: int, batch: int, size: int, block: int) -> list[Tensor]:
    """Return the rows of A, values and the state before the first step."""
    shapes = (steps, batch, size, block), (steps, batch, size), (batch, size)
    change, values, h0 = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return [change / 2, values, h0]


def first_steps(steps: int, batch: int, ragged: bool, resets: bool) -> dict[str, Tensor | None]:
    found = masks(steps, batch, ragged, resets)
    starts = found.pop("starts")
    is_first = torch.zeros(steps, batch, dtype=torch.bool) if starts is None else starts
    return {**found, "is_first": is_first}


def plain(*tensors: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    return naive.block_scan(*tensors, options["is_first"], options["lengths"])


def in_numpy(tensors: list[Tensor], options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equations, one row, one step and one unit at a time."""
    change, values, final = (tensor.numpy().copy() for tensor in tensors)
    (steps, batch, size, block), outputs = change.shape, np.zeros_like(values)
    for row in range(batch):
        for time in range(steps if options["lengths"] is None else int(options["lengths"][row])):
            before = final[row].copy()
            for unit in range(size):
                own = before[unit // block * block :][:block]
                final[row, unit] += change[time, row, unit, : len(own)] @ own
            if options["is_first"][time, row]:
                final[row] = values[time, row]
            outputs[time, row] = final[row]
    return outputs, final


@MASKS[0]
@MASKS[1]
def test_values_and_gradients_are_those_of_the_plain_scan(ragged: bool, resets: bool) -> None:
    for sizes in SIZES:
        tensors, options = drawn(*sizes), first_steps(*sizes[:2], ragged, resets)
        truth = results(plain, tensors, options, torch.float64)
        for found, expected in zip(truth, in_numpy(tensors, options), strict=False):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)
        assert_close(results(block_scan, tensors, options, torch.float64), truth, 1e-12)
        assert_close(results(block_scan, tensors, options, torch.float32), truth, 1e-4)


@MASKS[0]
@MASKS[1]
def test_no_uninitialized_memory_is_read(monkeypatch: pytest.MonkeyPatch, ragged: bool, resets: bool) -> None:
    tensors, options = drawn(9, 4, 5, 3), first_steps(9, 4, ragged, resets)
    expected = results(block_scan, tensors, options, torch.float64)
    assert poison(monkeypatch) == []
    assert_close(results(block_scan, tensors, options, torch.float64), expected, 0.0)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    tensors, options = drawn(9, 7, 5, 3), first_steps(9, 7, True, True)
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(results(block_scan, tensors, options, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert_close(found[0], found[1], 0.0)
    assert_close(found[0], found[2], 0.0)


def test_any_memory_layout_and_an_empty_batch() -> None:
    tensors, is_first = drawn(5, 4, 3, 3), torch.zeros(5, 4, dtype=torch.bool)
    strided = [tensor.mT.contiguous().mT for tensor in tensors]
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(block_scan(*strided, is_first), block_scan(*tensors, is_first), rtol=0, atol=0)
    change, values, h0 = tensors
    outputs, final = block_scan(change[:, :0], values[:, :0], h0[:0], is_first[:, :0])
    assert outputs.shape == (5, 0, 3)
    assert final.shape == (0, 3)


def test_second_derivatives_and_compiled_code() -> None:
    given = [tensor.requires_grad_() for tensor in drawn(4, 2, 3, 2)]
    options = first_steps(4, 2, True, True)

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return block_scan(*tensors, **options)

    assert torch.autograd.gradcheck(run, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*given), run(*given))
