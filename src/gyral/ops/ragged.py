"""Batches of sequences of different lengths, sorted by length.

Kernels run several rows of a batch together, as long as one of them has not ended. Rows of similar length side by side
take about half the time where the mean length is half of the longest.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Order(NamedTuple):
    """An order (B,) of the rows of a batch, and its inverse."""

    rows: Tensor
    inverse: Tensor

    def sort(self, tensor: Any, dim: int) -> Any:
        """Return the tensor with the rows along `dim` in this order; whatever is no tensor is returned as it is."""
        return _select(tensor, dim, self.rows, self.inverse) if isinstance(tensor, Tensor) else tensor

    def restore(self, tensor: Any, dim: int) -> Any:
        """Undo `sort`."""
        return _select(tensor, dim, self.inverse, self.rows) if isinstance(tensor, Tensor) else tensor


def longest_first(lengths: Tensor | None) -> Order | None:
    """Return the order that sorts lengths (B,) in descending order, or None if they are in it."""
    if lengths is None:
        return None
    if not torch.compiler.is_compiling() and bool((lengths[1:] <= lengths[:-1]).all()):
        return None
    rows = lengths.argsort(descending=True, stable=True)
    return Order(rows, rows.argsort())


def _select(tensor: Tensor, dim: int, rows: Tensor, inverse: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return tensor.index_select(dim, rows)
    selected: Tensor = _Select.apply(tensor, dim, rows, inverse)
    return selected


class _Select(torch.autograd.Function):
    """A permutation of rows; its backward is one too, while that of `index_select` adds rows one by one."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int, rows: Tensor, inverse: Tensor) -> Tensor:
        ctx.dim, ctx.orders = dim, (rows, inverse)
        return tensor.index_select(dim, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, inverse = ctx.orders
        return _Select.apply(gradients[0], ctx.dim, inverse, rows), None, None, None
