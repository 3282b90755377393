"""The kernel of `gyral.ops.permutation_scan` on the CPU against its steps, and the scan in plain torch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from gyral.ops.permutation_scan import KERNELS, naive, permutation_scan, step
from tests.helpers.kernels import skip_without
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

MASKS = pytest.mark.parametrize("ragged", [False, True]), pytest.mark.parametrize("resets", [False, True])
# T, B, N, K: one step, one row, one number, one matrix, and every remainder of a vector
SIZES = ((1, 1, 1, 1), (7, 5, 3, 2), (8, 2, 16, 1), (9, 3, 17, 3), (6, 1, 33, 2), (5, 2, 1, 4))


def drawn(steps: int, batch: int, size: int, matrices: int) -> list[Tensor]:
    """Return selection, dictionary, decay, values and the state before the first step."""
    shapes = (steps, batch, matrices), (matrices, size, size), *[(steps, batch, 2 * size)] * 2, (batch, 2 * size)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def plain(*tensors: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    return naive.permutation_scan(*tensors, options["lengths"], options["starts"])


def in_steps(
    selection: Tensor, dictionary: Tensor, decay: Tensor, values: Tensor, h0: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    outputs, hidden = [], h0
    for time, parts in enumerate(zip(selection, decay, values, strict=True)):
        before = hidden
        if options["starts"] is not None:
            before = hidden.masked_fill(options["starts"][time].unsqueeze(1), 0.0)
        new = step(parts[0], dictionary, *parts[1:], before)
        is_within = torch.ones(len(h0), 1).bool()
        if options["lengths"] is not None:
            is_within = (time < options["lengths"]).unsqueeze(1)
        hidden = torch.where(is_within, new, hidden)
        outputs.append(new * is_within)
    return torch.stack(outputs), hidden


@MASKS[0]
@MASKS[1]
def test_values_and_gradients_are_those_of_the_steps(ragged: bool, resets: bool) -> None:
    for sizes in SIZES:
        tensors, options = drawn(*sizes), masks(*sizes[:2], ragged, resets)
        truth = results(in_steps, tensors, options, torch.float64)
        assert_close(results(plain, tensors, options, torch.float64), truth, 1e-12)
        assert_close(results(permutation_scan, tensors, options, torch.float64), truth, 1e-12)
        assert_close(results(permutation_scan, tensors, options, torch.float32), truth, 1e-4)


@MASKS[0]
@MASKS[1]
def test_no_uninitialized_memory_is_read(monkeypatch: pytest.MonkeyPatch, ragged: bool, resets: bool) -> None:
    tensors, options = drawn(9, 4, 5, 3), masks(9, 4, ragged, resets)
    expected = results(permutation_scan, tensors, options, torch.float64)
    assert poison(monkeypatch) == []
    assert_close(results(permutation_scan, tensors, options, torch.float64), expected, 0.0)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    tensors, options = drawn(9, 7, 5, 3), masks(9, 7, True, True)
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(results(permutation_scan, tensors, options, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert_close(found[0], found[1], 0.0)
    assert_close(found[0], found[2], 0.0)


def test_any_memory_layout_and_an_empty_batch() -> None:
    tensors = drawn(5, 4, 3, 2)
    strided = [tensor.mT.contiguous().mT for tensor in tensors]
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(permutation_scan(*strided), permutation_scan(*tensors), rtol=0, atol=0)
    selection, dictionary, decay, values, h0 = tensors
    outputs, final = permutation_scan(selection[:, :0], dictionary, decay[:, :0], values[:, :0], h0[:0])
    assert outputs.shape == (5, 0, 6)
    assert final.shape == (0, 6)


def test_compiled_code() -> None:
    given, options = drawn(4, 2, 3, 2), masks(4, 2, True, True)

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return permutation_scan(*tensors, **options)

    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*given), run(*given))
