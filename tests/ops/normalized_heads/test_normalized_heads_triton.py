"""The Triton kernels of mLSTM's outputs against plain torch in float64: on a GPU, else under Triton's interpreter."""

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor

from gyral.ops.normalized_heads import LARGEST, normalized_heads
from tests.helpers.triton import DEVICE, ON_GPU, kernels_of

TOLERANCE = 1e-5 if ON_GPU else 2e-6


@pytest.fixture(autouse=True)
def triton_kernels() -> Iterator[None]:
    with kernels_of(normalized_heads):
        yield


def results(run: object, outputs: Tensor, least: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return the result and the gradients, in float64."""
    leaves = [each.detach().to(DEVICE, dtype, copy=True).requires_grad_() for each in (outputs, least)]
    found = run(*leaves, 1e-5)  # type: ignore[operator]
    order = torch.arange(found.numel(), device=DEVICE, dtype=dtype).view_as(found)
    return [each.detach().cpu().double() for each in (found, *torch.autograd.grad(found, leaves, order.sin()))]


# T, B, H, V: one head (two numbers would always be ±1), a size that is no power of 2, several programs, the largest
@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (5, 3, 4, 13), (9, 3, 5, 16), (1, 2, 1, LARGEST - 1)], ids=str)
def test_kernels_equal_plain_torch(shape: tuple[int, ...]) -> None:
    *leading, size = shape
    outputs = torch.randn(*leading, size + 1)
    least = torch.randn(leading).exp()  # some above |n|, others below
    least[0, 0, 0] = outputs[0, 0, 0, -1] = 0.5  # equal ones
    found = results(normalized_heads, outputs, least, torch.float32)
    expected = results(normalized_heads.naive, outputs, least, torch.float64)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= TOLERANCE * other.norm()


def test_a_nan_stays_in_its_head() -> None:
    outputs, least = torch.randn(4, 2, 3, 6), torch.rand(4, 2, 3)
    expected = results(normalized_heads, outputs, least, torch.float32)
    outputs[1, 0, 2, 0] = outputs[2, 1, 1, -1] = least[3, 1, 0] = torch.nan
    found = results(normalized_heads, outputs, least, torch.float32)
    spoiled = torch.zeros(4, 2, 3, dtype=torch.bool)
    spoiled[1, 0, 2] = spoiled[2, 1, 1] = spoiled[3, 1, 0] = True
    assert found[0][spoiled].isnan().all()
    assert all(torch.equal(one[~spoiled], other[~spoiled]) for one, other in zip(found, expected, strict=True))


def test_no_rows() -> None:
    assert results(normalized_heads, torch.zeros(3, 0, 2, 4), torch.zeros(3, 0, 2), torch.float32)[0].shape == (
        3,
        0,
        2,
        3,
    )
