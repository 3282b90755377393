"""A memory that is a decaying sum of outer products, A_t = λ A_{t−1} + η h_t h_tᵀ, read without being built.

A_t q = λ^t A_0 q + η Σ_τ λ^{t−τ} h_τ (h_τ · q) costs O(t N) instead of O(N²), and backward keeps the vectors h_τ alone
(Ba et al., NIPS 2016, section 4).
"""

from typing import Any

import torch
from torch import Tensor

from gyral.ops.differentiation import first_derivative


class Associations:
    """The memory of one sequence: vectors are appended, and what was appended so far is read.

    Both are differentiable, any number of times, but not twice through.

    Args:
        steps: T, how many vectors will be appended.
        initial: A_0 (B, N, N).
        decay: λ. rate: η.
    """

    def __init__(self, steps: int, initial: Tensor, decay: float, rate: float) -> None:
        self.initial, self.decay, self.rate = initial, decay, rate
        # most sequences start with nothing; then A_0 is not read
        self.starts_empty = not (initial.requires_grad or bool(initial.any()))
        self.vectors: list[Tensor] = []
        self._store = _Store(initial.new_empty(initial.shape[0], steps, initial.shape[1]))

    def append(self, vector: Tensor) -> Tensor:
        """Append h (B, N); returns it, to be used from now on in its place."""
        # chained, so that backward comes to each of them after all reads that saw it, whatever the queries were made of
        vector = _Append.apply(vector, self._last(), self._store, len(self.vectors))
        self.vectors.append(vector)
        return vector

    def read(self, query: Tensor) -> Tensor:
        """Return A q (B, N) for q (B, N), under autocast in A's own type."""
        count = len(self.vectors)
        query = query.to(self.initial.dtype)
        with torch.autocast(query.device.type, enabled=False):
            read: Tensor = _Read.apply(query, self._last(), self._store, self.weights(count))
            return read if self.starts_empty else self._read_initial(read, query, count)

    def _last(self) -> Tensor | None:
        return self.vectors[-1] if self.vectors else None

    def _read_initial(self, read: Tensor, query: Tensor, count: int) -> Tensor:
        return torch.baddbmm(read.unsqueeze(-1), self.initial, query.unsqueeze(-1), alpha=self.decay**count).squeeze(-1)

    def matrix(self, counts: Tensor | None = None) -> Tensor:
        """Return A (B, N, N) after each row's first `counts` (B,) vectors, after all of them if None."""
        vectors = torch.stack(self.vectors, dim=1)
        if counts is None:
            counts = torch.full(vectors.shape[:1], len(self.vectors), device=vectors.device)
        age = counts.unsqueeze(1) - 1 - torch.arange(len(self.vectors), device=vectors.device)
        weights = torch.where(age >= 0, self.rate * self.decay ** age.clamp(min=0).to(vectors.dtype), 0.0)
        decayed = self.initial * (self.decay ** counts.to(vectors.dtype)).view(-1, 1, 1)
        return torch.baddbmm(decayed, (vectors * weights.unsqueeze(-1)).transpose(1, 2), vectors)

    def weights(self, count: int) -> Tensor:
        """Return η λ^{age} (count,) of the first `count` vectors when these are all."""
        ages = torch.arange(count - 1, -1, -1, dtype=self.initial.dtype, device=self.initial.device)
        return self.rate * self.decay**ages


class _Store:
    """Vectors (B, T, N) as backward needs them; apart from `Associations`, which holds the graph that holds this."""

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors
        self._gradients: Tensor | None = None
        self._backward_pass = -1

    def gradients(self) -> Tensor:
        """Return where the reads of the backward pass under way gather the gradients of the vectors (B, T, N)."""
        current = torch._C._current_graph_task_id()
        if self._gradients is None or self._backward_pass != current:
            self._gradients, self._backward_pass = torch.zeros_like(self.vectors), current
        return self._gradients


class _Append(torch.autograd.Function):
    """The identity; its gradient is joined by that of all later reads, whose backward comes before its own."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, previous: Tensor | None, store: _Store, index: int) -> Tensor:
        store.vectors[:, index] = vector
        ctx.store, ctx.index = store, index
        return vector.view_as(vector)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return gradient + ctx.store.gradients()[:, ctx.index], None, None, None


class _Read(torch.autograd.Function):
    """Σ_τ w_τ h_τ (h_τ · q) over as many vectors as there are weights."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, last: Tensor | None, store: _Store, weights: Tensor) -> Tensor:
        vectors = store.vectors[:, : len(weights)]
        likeness = torch.bmm(vectors, query.unsqueeze(-1)).squeeze(-1) * weights
        ctx.save_for_backward(query, likeness, weights)
        ctx.store = store
        return torch.bmm(likeness.unsqueeze(1), vectors).squeeze(1)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        query, likeness, weights = ctx.saved_tensors
        vectors, gradients = (t[:, : len(weights)] for t in (ctx.store.vectors, ctx.store.gradients()))
        along = torch.bmm(vectors, gradient.unsqueeze(-1)).squeeze(-1) * weights
        # of every vector: w (h·q) g + w (h·g) q
        gradients.baddbmm_(torch.stack((likeness, along), dim=-1), torch.stack((gradient, query), dim=1))
        return torch.bmm(along.unsqueeze(1), vectors).squeeze(1), None, None, None
