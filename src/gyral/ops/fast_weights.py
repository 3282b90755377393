"""Fast weights A_t = λ A_{t−1} + η h_t h_tᵀ, applied to vectors without computing the matrix.

A_t q = λ^t A_0 q + η Σ_τ λ^{t−τ} h_τ (h_τ · q) takes O(t N) operations instead of O(N²), and only the vectors h_τ are
kept for the backward pass (Ba et al., NIPS 2016, section 4).
"""

from typing import Any

import torch
from torch import Tensor

from gyral.core import compat
from gyral.ops.autograd import differentiable_by, outside_autocast


class FastWeights:
    """The fast weights of one sequence, given by the vectors that were appended so far.

    `append` and `read` are differentiable. Several backward passes may run over the same graph.

    Args:
        steps: T, the number of vectors that will be appended.
        initial: A_0 (B, N, N).
        decay: λ.
        rate: η.
        starts: (T, B) bool, or None. True resets A to zero; the vector appended at that step is zero, too.
    """

    def __init__(self, steps: int, initial: Tensor, decay: float, rate: float, starts: Tensor | None = None) -> None:
        self.initial, self.decay, self.rate = initial, decay, rate
        # most sequences start from A_0 = 0, which need not be read
        self.starts_empty = not (initial.requires_grad or bool(initial.any()))
        self._first: Tensor | None = None
        if starts is not None:
            self._first = _last_starts(starts).unsqueeze(-1)  # (T, B, 1), the last step at which A was zero, or -1
            self._starts, self._any_starts = starts.unsqueeze(-1), starts.any(1).tolist()
            self._counted = initial.new_ones(initial.shape[0], steps)  # 0 for vectors before the last start
        self._index = torch.arange(steps, device=initial.device)
        self._decays = rate * decay ** self._index.flip(0).to(initial.dtype)
        self.vectors: list[Tensor] = []
        self._weights = initial.new_empty(0)
        self._store = _Store(initial.new_empty(initial.shape[0], steps, initial.shape[1]))

    def append(self, vector: Tensor) -> Tensor:
        """Append h (B, N) and return a tensor to use in place of h from now on, zero in rows that are reset."""
        count = len(self.vectors)
        if self._first is not None and self._any_starts[count]:
            vector = vector.masked_fill(self._starts[count], 0.0)
            self._counted.masked_fill_(self._index < self._first[count], 0.0)
        # each vector depends on the previous one, so that its backward runs after the backward
        # of all reads that used it
        vector = _Append.apply(vector, self._last(), self._store, count)
        self.vectors.append(vector)
        self._weights = self._decays[len(self._decays) - count - 1 :]  # η λ^age
        if self._first is not None:
            self._weights = self._weights * self._counted[:, : count + 1]
        return vector

    def read(self, query: Tensor) -> Tensor:
        """Return A q (B, N) for q (B, N), under autocast in the dtype of A."""
        count = len(self.vectors)
        query = query.to(self.initial.dtype)
        with outside_autocast(query.device):
            read: Tensor = _Read.apply(query, self._last(), self._store, self._weights)
            return read if self.starts_empty else self._read_initial(read, query, count)

    def _last(self) -> Tensor | None:
        return self.vectors[-1] if self.vectors else None

    def _read_initial(self, read: Tensor, query: Tensor, count: int) -> Tensor:
        if self._first is not None and count > 0:
            query = query * (self._first[count - 1] < 0)
        return torch.baddbmm(read.unsqueeze(-1), self.initial, query.unsqueeze(-1), alpha=self.decay**count).squeeze(-1)

    def matrix(self, counts: Tensor | None = None) -> Tensor:
        """Return A (B, N, N) after the first `counts` (B,) vectors of each row, or after all vectors if None."""
        vectors = torch.stack(self.vectors, dim=1)
        if counts is None:
            counts = torch.full(vectors.shape[:1], len(self.vectors), device=vectors.device)
        index = self._index[: len(self.vectors)]
        age = counts.unsqueeze(1) - 1 - index
        counted, initial = age >= 0, self.initial
        if self._first is not None:
            first = self._first[counts - 1, torch.arange(len(counts), device=counts.device)]
            counted, initial = counted & (index >= first), initial * (first < 0).unsqueeze(-1)
        weights = torch.where(counted, self.rate * self.decay ** age.clamp(min=0).to(vectors.dtype), 0.0)
        decayed = initial * (self.decay ** counts.to(vectors.dtype)).view(-1, 1, 1)
        return torch.baddbmm(decayed, (vectors * weights.unsqueeze(-1)).transpose(1, 2), vectors)


def _last_starts(starts: Tensor) -> Tensor:
    """Return (T, B), the index of the last True in each column of `starts` up to each step, or -1."""
    index = torch.arange(len(starts), device=starts.device).unsqueeze(1)
    return torch.where(starts, index, -1).cummax(0).values


class _Store:
    """The vectors (B, T, N) for backward; separate from `FastWeights` to avoid a reference cycle through the graph."""

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors
        self._gradients: Tensor | None = None
        self._backward_pass = -1

    def gradients(self) -> Tensor:
        """Return the tensor (B, T, N) in which the current backward pass accumulates the gradients of the vectors."""
        current = compat.current_backward_pass()
        if self._gradients is None or self._backward_pass != current:
            self._gradients, self._backward_pass = torch.zeros_like(self.vectors), current
            if torch.is_grad_enabled():  # the gradients have a graph, which leads back here: cut the cycle at the end
                compat.call_after_backward(self._forget)
        return self._gradients

    def add(self, gradients: Tensor) -> None:
        """Add to the gradients of the first vectors, in a backward pass that builds a graph."""
        rest = self.vectors.shape[1] - gradients.shape[1]
        self._gradients = self.gradients() + torch.nn.functional.pad(gradients, (0, 0, 0, rest))

    def _forget(self) -> None:
        self._gradients = None

    def differentiable(self, last: Tensor | None, count: int) -> Tensor:
        """Return the first `count` vectors (B, count, N) with their graphs, given the last of them."""
        found = []
        while last is not None and last.grad_fn is not None:
            found.append(last.to(self.vectors.dtype))
            (last,) = last.grad_fn.saved_tensors  # type: ignore[attr-defined]
        constant = self.vectors[:, : count - len(found)]
        return torch.cat((constant, torch.stack(found[::-1], dim=1)), dim=1) if found else constant


class _Append(torch.autograd.Function):
    """The identity; its backward runs after the backward of all later reads and adds their gradients."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, previous: Tensor | None, store: _Store, index: int) -> Tensor:
        store.vectors[:, index] = vector
        ctx.save_for_backward(previous)
        ctx.store, ctx.index = store, index
        return vector.view_as(vector)

    @staticmethod
    def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return gradient + ctx.store.gradients()[:, ctx.index], None, None, None

    backward = staticmethod(differentiable_by(_backward)(_backward))


class _Read(torch.autograd.Function):
    """Σ_τ w_τ h_τ (h_τ · q) over the first vectors, one per weight; the weights are (count,) or (B, count)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, last: Tensor | None, store: _Store, weights: Tensor) -> Tensor:
        vectors = store.vectors[:, : weights.shape[-1]]
        similarity = torch.bmm(vectors, query.unsqueeze(-1)).squeeze(-1) * weights
        ctx.save_for_backward(query, last, similarity, weights)
        ctx.store = store
        return torch.bmm(similarity.unsqueeze(1), vectors).squeeze(1)

    @staticmethod
    def _second(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Compute `backward` with differentiable functions of torch."""
        query, last, _, weights = ctx.saved_tensors
        vectors = ctx.store.differentiable(last, weights.shape[-1])
        both = torch.stack((query, gradient), dim=-1)
        similarity, projection = (torch.bmm(vectors, both) * weights.unsqueeze(-1)).unbind(-1)
        ctx.store.add(similarity.unsqueeze(-1) * gradient.unsqueeze(1) + projection.unsqueeze(-1) * query.unsqueeze(1))
        return torch.bmm(projection.unsqueeze(1), vectors).squeeze(1), None, None, None

    @staticmethod
    @differentiable_by(_second)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        query, _, similarity, weights = ctx.saved_tensors
        vectors, gradients = (t[:, : weights.shape[-1]] for t in (ctx.store.vectors, ctx.store.gradients()))
        projection = torch.bmm(vectors, gradient.unsqueeze(-1)).squeeze(-1) * weights
        # the gradient of each vector is w (h·q) g + w (h·g) q
        gradients.baddbmm_(torch.stack((similarity, projection), dim=-1), torch.stack((gradient, query), dim=1))
        return torch.bmm(projection.unsqueeze(1), vectors).squeeze(1), None, None, None
