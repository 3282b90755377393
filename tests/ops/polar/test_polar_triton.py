"""The Triton kernels of polar numbers against plain torch in float64: on a GPU, else under Triton's interpreter."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor

from gyral.ops.polar import polar
from tests.helpers.triton import DEVICE, ON_GPU, kernels_of

TOLERANCE = 1e-5 if ON_GPU else 2e-6


@pytest.fixture(autouse=True)
def triton_kernels() -> Iterator[None]:
    with kernels_of(polar):
        yield


def results(run: Any, magnitude: Tensor, phase: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return the result and the gradients, in float64."""
    leaves = [each.detach().to(DEVICE, dtype, copy=True).requires_grad_() for each in (magnitude, phase)]
    found = run(*leaves)
    order = torch.arange(found.numel(), device=DEVICE, dtype=dtype).view_as(found)
    return [each.detach().cpu().double() for each in (found, *torch.autograd.grad(found, leaves, order.sin()))]


@pytest.mark.parametrize("shape", [(4, 3, 5), (9, 2, 32)], ids=str)  # one program, several
def test_kernels_equal_plain_torch(shape: tuple[int, ...]) -> None:
    magnitude, phase = 4 * torch.randn(shape), 4 * torch.randn(shape)
    found = results(polar, magnitude, phase, torch.float32)
    expected = results(polar.naive, magnitude, phase, torch.float64)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= TOLERANCE * other.norm()


def test_far_from_zero() -> None:
    values = torch.tensor([[[-1e4, -100.0, 100.0, 1e4]]])
    for one, other in zip(
        results(polar, values, values.flip(2), torch.float32),
        results(polar.naive, values, values.flip(2), torch.float64),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_no_gradient_is_one_of_none() -> None:
    """The engine runs a backward pass, too, if what follows has returned no gradient."""

    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> None:
            return None

    leaf = torch.ones(1, 1, 2, device=DEVICE, requires_grad=True)
    (Stop.apply(polar(leaf, leaf)).sum() + leaf.sum()).backward()
    assert torch.equal(leaf.grad, torch.ones_like(leaf))


def test_no_rows() -> None:
    assert results(polar, torch.zeros(2, 0, 3), torch.zeros(2, 0, 3), torch.float32)[0].shape == (2, 0, 6)
