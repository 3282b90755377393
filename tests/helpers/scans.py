"""Proofs that the kernel of a scan over time equals its definition in plain torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Run = Callable[..., tuple[Tensor, ...]]


def results(run: Run, tensors: list[Tensor], options: dict[str, Any], dtype: torch.dtype) -> list[Tensor]:
    """Return outputs, the tensors of the final state and all gradients of a scan, in float64."""
    leaves = [tensor.detach().to(dtype, copy=True).requires_grad_() for tensor in tensors]
    values = run(*leaves, **options)
    generator = torch.Generator().manual_seed(5)
    cotangents = [torch.randn(value.shape, generator=generator, dtype=torch.float64) for value in values]
    gradients = torch.autograd.grad(values, leaves, [each.to(dtype) for each in cotangents])
    return [value.detach().double() for value in (*values, *gradients)]


def assert_close(one: list[Tensor], other: list[Tensor], tolerance: float) -> None:
    """Assert that tensors are close, relative to the largest entry of each."""
    for actual, expected in zip(one, other, strict=True):
        scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
        torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * scale)


def masks(steps: int, batch: int, ragged: bool, resets: bool) -> dict[str, Tensor | None]:
    """Return lengths and starts, each drawn or None."""
    return {
        "lengths": torch.randint(1, steps + 1, (batch,)) if ragged else None,
        "starts": torch.rand(steps, batch) < 0.3 if resets else None,
    }
