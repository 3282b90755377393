"""Fast weights A_t = λ A_{t−1} + η h_t h_tᵀ, applied to vectors without computing the matrix.

A_t q = λ^t A_0 q + η Σ_τ λ^{t−τ} h_τ (h_τ · q) takes O(t N) operations instead of O(N²), and only the vectors h_τ are
kept for the backward pass (Ba et al., NIPS 2016, section 4).
"""

from typing import Any

import torch
from torch import Tensor

from gyral.ops.autograd import once_differentiable


class FastWeights:
    """The fast weights of one sequence, given by the vectors that were appended so far.

    `append` and `read` are differentiable once. Several backward passes may run over the same graph.

    Args:
        steps: T, the number of vectors that will be appended.
        initial: A_0 (B, N, N).
        decay: λ.
        rate: η.
    """

    def __init__(self, steps: int, initial: Tensor, decay: float, rate: float) -> None:
        self.initial, self.decay, self.rate = initial, decay, rate
        # most sequences start from A_0 = 0, which need not be read
        self.starts_empty = not (initial.requires_grad or bool(initial.any()))
        self.vectors: list[Tensor] = []
        self._store = _Store(initial.new_empty(initial.shape[0], steps, initial.shape[1]))

    def append(self, vector: Tensor) -> Tensor:
        """Append h (B, N) and return a tensor to use in place of h from now on."""
        # each vector depends on the previous one, so that its backward runs after that of all reads that used it,
        # whatever the queries depend on
        vector = _Append.apply(vector, self._last(), self._store, len(self.vectors))
        self.vectors.append(vector)
        return vector

    def read(self, query: Tensor) -> Tensor:
        """Return A q (B, N) for q (B, N), under autocast in the dtype of A."""
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
        """Return A (B, N, N) after the first `counts` (B,) vectors of each row, or after all vectors if None."""
        vectors = torch.stack(self.vectors, dim=1)
        if counts is None:
            counts = torch.full(vectors.shape[:1], len(self.vectors), device=vectors.device)
        age = counts.unsqueeze(1) - 1 - torch.arange(len(self.vectors), device=vectors.device)
        weights = torch.where(age >= 0, self.rate * self.decay ** age.clamp(min=0).to(vectors.dtype), 0.0)
        decayed = self.initial * (self.decay ** counts.to(vectors.dtype)).view(-1, 1, 1)
        return torch.baddbmm(decayed, (vectors * weights.unsqueeze(-1)).transpose(1, 2), vectors)

    def weights(self, count: int) -> Tensor:
        """Return the weights η λ^{age} (count,) of the first `count` vectors after `count` steps."""
        ages = torch.arange(count - 1, -1, -1, dtype=self.initial.dtype, device=self.initial.device)
        return self.rate * self.decay**ages


class _Store:
    """The vectors (B, T, N) for backward; separate from `FastWeights` to avoid a reference cycle through the graph."""

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors
        self._gradients: Tensor | None = None
        self._backward_pass = -1

    def gradients(self) -> Tensor:
        """Return the tensor (B, T, N) in which the current backward pass accumulates the gradients of the vectors."""
        current = torch._C._current_graph_task_id()
        if self._gradients is None or self._backward_pass != current:
            self._gradients, self._backward_pass = torch.zeros_like(self.vectors), current
        return self._gradients


class _Append(torch.autograd.Function):
    """The identity; its backward, which runs after that of all later reads, adds the gradients from these reads."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, previous: Tensor | None, store: _Store, index: int) -> Tensor:
        store.vectors[:, index] = vector
        ctx.store, ctx.index = store, index
        return vector.view_as(vector)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return gradient + ctx.store.gradients()[:, ctx.index], None, None, None


class _Read(torch.autograd.Function):
    """Σ_τ w_τ h_τ (h_τ · q) over the first vectors, one per weight."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, last: Tensor | None, store: _Store, weights: Tensor) -> Tensor:
        vectors = store.vectors[:, : len(weights)]
        similarity = torch.bmm(vectors, query.unsqueeze(-1)).squeeze(-1) * weights
        ctx.save_for_backward(query, similarity, weights)
        ctx.store = store
        return torch.bmm(similarity.unsqueeze(1), vectors).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        query, similarity, weights = ctx.saved_tensors
        vectors, gradients = (t[:, : len(weights)] for t in (ctx.store.vectors, ctx.store.gradients()))
        projection = torch.bmm(vectors, gradient.unsqueeze(-1)).squeeze(-1) * weights
        # the gradient of each vector is w (h·q) g + w (h·g) q
        gradients.baddbmm_(torch.stack((similarity, projection), dim=-1), torch.stack((gradient, query), dim=1))
        return torch.bmm(projection.unsqueeze(1), vectors).squeeze(1), None, None, None
