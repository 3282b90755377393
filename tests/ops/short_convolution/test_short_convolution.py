"""The short convolution: kernel and plain torch against a window of each step, with masks, parts and layouts."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.short_convolution import KERNELS, naive, short_convolution
from tests.helpers.kernels import skip_without
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

MASKS = pytest.mark.parametrize("ragged", [False, True]), pytest.mark.parametrize("resets", [False, True])
BIAS = pytest.mark.parametrize("has_bias", [False, True])
# T, B, K and the sizes of the parts: a single number, fewer steps than a window, several blocks of 8 rows, sizes around
# those of a vector, windows of other sizes than 4
SIZES = (
    (1, 1, 4, (1,)),
    (2, 9, 4, (16, 33)),
    (20, 3, 4, (5, 16, 8)),
    (17, 2, 2, (3, 40)),
    (9, 17, 7, (19,)),
)
Tensors = dict[str, Tensor]


def drawn(sizes: tuple[Any, ...], has_bias: bool) -> Tensors:
    """Return the tensors of the convolution by their names."""
    steps, batch, kernel, parts = sizes
    channels = sum(parts)
    shapes = {
        "values": (steps, batch, channels),
        "weight": (channels, kernel),
        "history": (batch, kernel - 1, channels),
    }
    if has_bias:
        shapes["bias"] = (channels,)
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


def of_each_step(
    values: Tensor,
    weight: Tensor,
    history: Tensor,
    bias: Tensor | None = None,
    *,
    sizes: tuple[int, ...],
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, ...]:
    outputs, inside = [], history
    for time, value in enumerate(values):
        if starts is not None:
            inside = inside.masked_fill(starts[time, :, None, None], 0.0)
        inside = torch.cat((inside, value.unsqueeze(1)), dim=1)
        output = F.silu(torch.einsum("bkc,ck->bc", inside, weight) + (0 if bias is None else bias))
        outputs.append(output if lengths is None else output.masked_fill((time >= lengths).unsqueeze(1), 0.0))
        inside = inside[:, 1:]
    return torch.stack(outputs).split(sizes, dim=2)


def plain(
    values: Tensor,
    weight: Tensor,
    history: Tensor,
    bias: Tensor | None = None,
    *,
    sizes: tuple[int, ...],
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, ...]:
    found = naive.short_convolution(values, weight, bias, history, lengths, starts, *(*sizes, 0)[:2])
    return found[: len(sizes)]


def found_by(run: Any, given: Tensors, options: dict[str, Any], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return the parts and all gradients, in float64."""

    def by_name(*tensors: Tensor, **further: Any) -> Any:
        return run(**dict(zip(given, tensors, strict=True)), **further)

    return results(by_name, list(given.values()), options, dtype)


@MASKS[0]
@MASKS[1]
@BIAS
def test_values_and_gradients_are_those_of_each_step(has_bias: bool, ragged: bool, resets: bool) -> None:
    for sizes in SIZES:
        given, options = drawn(sizes, has_bias), {**masks(*sizes[:2], ragged, resets), "sizes": sizes[3]}
        truth = found_by(of_each_step, given, options)
        assert_close(found_by(plain, given, options), truth, 1e-12)
        assert_close(found_by(short_convolution, given, options), truth, 1e-12)
        assert_close(found_by(short_convolution, given, options, torch.float32), truth, 1e-5)


@MASKS[0]
@MASKS[1]
def test_no_uninitialized_memory_is_read(monkeypatch: pytest.MonkeyPatch, ragged: bool, resets: bool) -> None:
    given, options = drawn(SIZES[2], True), {**masks(20, 3, ragged, resets), "sizes": SIZES[2][3]}
    expected = found_by(short_convolution, given, options)
    assert poison(monkeypatch) == []
    assert_close(found_by(short_convolution, given, options), expected, 0.0)


def test_values_beyond_the_lengths_may_be_anything() -> None:
    given, lengths = drawn((6, 2, 4, (5,)), True), torch.tensor([2, 6])
    (expected,) = short_convolution(**given, lengths=lengths)
    given["values"][2:, 0] = torch.nan
    (found,) = short_convolution(**given, lengths=lengths)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_parts_without_a_gradient_and_results_on_several_threads() -> None:
    sizes, options = (12, 19, 4, (3, 18, 4)), masks(12, 19, True, True)
    given = {name: tensor.requires_grad_() for name, tensor in drawn(sizes, True).items()}
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            parts = short_convolution(**given, sizes=sizes[3], **options)
            found.append(torch.autograd.grad(parts[1].sum(), given.values()))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    expected = torch.autograd.grad(plain(**given, sizes=sizes[3], **options)[1].sum(), given.values())
    assert_close(list(found[0]), list(expected), 1e-12)


def test_a_window_too_long_for_the_kernel_any_layout_and_an_empty_batch() -> None:
    given = drawn((5, 2, 40, (3,)), False)
    options = {"sizes": (3,), "lengths": None, "starts": None}
    torch.testing.assert_close(short_convolution(**given, **options), of_each_step(**given, **options))
    given = drawn(SIZES[2], True)
    strided = {name: tensor if name == "bias" else tensor.mT.contiguous().mT for name, tensor in given.items()}
    torch.testing.assert_close(short_convolution(**strided), short_convolution(**given), rtol=0, atol=0)
    empty = {**given, "values": given["values"][:, :0], "history": given["history"][:0]}
    assert short_convolution(**empty)[0].shape == (20, 0, 29)


def test_second_derivatives_and_compiled_code() -> None:
    given = {name: tensor.requires_grad_() for name, tensor in drawn((3, 2, 3, (2, 1)), True).items()}
    options = {**masks(3, 2, True, True), "sizes": (2, 1)}

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        return short_convolution(**dict(zip(given, tensors, strict=True)), **options)

    tensors = tuple(given.values())
    assert torch.autograd.gradcheck(run, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, tensors, fast_mode=True)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*tensors), run(*tensors))
