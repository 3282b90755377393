"""The kernel of `gyral.ops.m2rnn` on the CPU against its steps in plain torch."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gyral.ops.m2rnn import KERNELS, m2rnn, naive
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

# T, B, G, H, K, V: one number, whole chunks of 32 steps and some more, keys of each head and shared ones, sizes around
# those of one vector and of several, and strips of 32 rows
SIZES = (
    (1, 1, 1, 1, 1, 1),
    (7, 3, 1, 3, 3, 5),
    (32, 2, 2, 2, 16, 16),
    (70, 2, 1, 2, 9, 17),
    (33, 1, 3, 3, 65, 25),
    (5, 2, 1, 2, 12, 50),
    (5, 1, 1, 1, 7, 65),
)
RAGGED, RESETS = pytest.mark.parametrize("ragged", [False, True]), pytest.mark.parametrize("resets", [False, True])
MASKS = tuple(itertools.product((True, False), repeat=2))  # ragged, resets
CLIP = for_each("clip", [None, 0.5])


def drawn(steps: int, batch: int, groups: int, heads: int, key: int, value: int) -> list[Tensor]:
    """Return q, k, v, f, W and the memory before the first step."""
    keys = (torch.randn(steps, batch, groups, key, dtype=torch.float64) for _ in range(2))
    return [
        *keys,
        torch.randn(steps, batch, heads, value, dtype=torch.float64),
        torch.rand(steps, batch, heads, dtype=torch.float64),
        torch.randn(heads, value, value, dtype=torch.float64) / value**0.5,
        torch.randn(batch, heads, key, value, dtype=torch.float64),
    ]


def plain(*tensors: Tensor, clip: float | None, **options: Any) -> tuple[Tensor, Tensor]:
    return naive.m2rnn(*tensors, math.inf if clip is None else clip, **options)


def check_sizes(sizes: tuple[int, ...], masked: tuple[bool, bool], clip: float | None) -> None:
    tensors, options = drawn(*sizes), {"clip": clip, **masks(*sizes[:2], *masked)}
    truth = results(plain, tensors, options, torch.float64)
    assert_close(results(m2rnn, tensors, options, torch.float64), truth, 1e-12)
    assert_close(results(m2rnn, tensors, options, torch.float32), truth, 5e-5)


@CLIP
def test_values_and_gradients_are_those_of_the_plain_steps(clip: float | None) -> None:
    for sizes, masked in zip(SIZES, itertools.cycle(MASKS), strict=False):
        check_sizes(sizes, masked, clip)


@pytest.mark.slow
@CLIP
def test_all_sizes_with_all_masks(clip: float | None) -> None:
    for sizes, masked in itertools.product(SIZES, MASKS):
        check_sizes(sizes, masked, clip)


@for_each("chunk", [1, 5, 100])
def test_results_do_not_depend_on_the_size_of_a_chunk(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("gyral.ops.m2rnn.CHUNK", chunk)
    tensors, options = drawn(23, 2, 1, 2, 5, 18), {"clip": 0.5, **masks(23, 2, True, True)}
    truth = results(plain, tensors, options, torch.float64)
    assert_close(results(m2rnn, tensors, options, torch.float64), truth, 1e-12)


@RAGGED
@RESETS
def test_no_uninitialized_memory_is_read(monkeypatch: pytest.MonkeyPatch, ragged: bool, resets: bool) -> None:
    tensors, options = drawn(35, 4, 1, 2, 5, 3), {"clip": None, **masks(35, 4, ragged, resets)}
    expected = results(m2rnn, tensors, options, torch.float64)
    assert poison(monkeypatch) == []
    assert_close(results(m2rnn, tensors, options, torch.float64), expected, 0.0)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    tensors, options = drawn(20, 3, 2, 4, 5, 3), {"clip": 1.0, **masks(20, 3, True, True)}
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            found.append(results(m2rnn, tensors, options, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert_close(found[0], found[1], 0.0)
    assert_close(found[0], found[2], 0.0)


@for_each("place", ["q", "k", "v", "forget", "weight", "s0"])
def test_a_nan_stays_a_nan(place: str) -> None:
    """Clipping must not turn a NaN into a number."""
    tensors = dict(zip(("q", "k", "v", "forget", "weight", "s0"), drawn(3, 1, 1, 1, 2, 3), strict=True))
    tensors[place].view(-1)[0] = torch.nan
    options = {"clip": 0.5, **masks(3, 1, False, False)}
    outputs, *_, grad_s0 = results(m2rnn, list(tensors.values()), options, torch.float32)
    assert outputs.isnan().any()
    assert grad_s0.isnan().any()


def test_any_memory_layout_and_an_empty_batch() -> None:
    tensors = drawn(5, 4, 2, 2, 3, 2)
    strided = [tensor.mT.contiguous().mT for tensor in tensors]
    torch.testing.assert_close(m2rnn(*strided), m2rnn(*tensors), rtol=0, atol=0)
    *of_steps, weight, s0 = tensors
    outputs, final = m2rnn(*(tensor[:, :0] for tensor in of_steps), weight, s0[:0])
    assert outputs.shape == (5, 0, 2, 2)
    assert final.shape == (0, 2, 3, 2)


def test_a_second_backward_pass_over_the_same_graph() -> None:
    tensors = [tensor.requires_grad_() for tensor in drawn(20, 2, 1, 2, 3, 2)]
    outputs, _ = m2rnn(*tensors)
    first, second = (torch.autograd.grad(outputs.sum(), tensors, retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_second_derivatives_and_compiled_code() -> None:
    tensors = [tensor.requires_grad_() for tensor in drawn(3, 2, 1, 2, 2, 1)]
    options = masks(3, 2, True, True)

    def run(*given: Tensor) -> tuple[Tensor, Tensor]:
        return m2rnn(*given, **options)

    assert torch.autograd.gradcheck(run, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, tensors, fast_mode=True)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*tensors), run(*tensors))
