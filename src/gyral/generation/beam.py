"""Beam search for any model of next-token probabilities; all hypotheses of a batch run together."""

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError
from gyral.nn.recurrent import reorder


class Hypotheses(NamedTuple):
    """The K best sequences of each of B rows, best first.

    Attributes:
        tokens: (B, K, L) tokens, padded with the stop token.
        lengths: (B, K) number of tokens, including the stop token; 0 if fewer than K sequences were found.
        scores: (B, K) sum of the log-probabilities divided by length^`length_penalty`; −∞ if fewer were found.
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor


class BeamSearch:
    """Beam search as See et al. (2017) decode summaries.

    Each step considers the 2K most likely continuations of the K hypotheses of a row, best first. A continuation that
    ends with the stop token is finished; the best K other continuations remain hypotheses. The search of a row ends
    when K hypotheses are finished, or at `max_length`. Unfinished hypotheses count only if none is finished. The best
    hypothesis is the finished one with the largest score:

        score = Σ_t log P(w_t) / length^length_penalty

    The length includes the stop token. (The authors' code also counts the start token.) K = 1 is greedy decoding.

    Args:
        beam: K.
        min_length: minimum number of tokens before the stop token.
        max_length: maximum number of tokens, including the stop token.
        length_penalty: exponent of the length. With 0, scores are log-probabilities; with 1, their means over tokens.
        block_ngrams: n: a sequence must not contain the same n consecutive tokens twice; 0: no restriction.
        forbidden: tokens that are never generated.

    Raises:
        OptionError: an option is out of bounds or has the wrong type.
    """

    def __init__(
        self,
        beam: int = 4,
        *,
        min_length: int = 35,
        max_length: int = 120,
        length_penalty: float = 1.0,
        block_ngrams: int = 0,
        forbidden: Sequence[int] = (),
    ) -> None:
        self.beam = check_integer("beam", beam)
        self.max_length = check_integer("max_length", max_length)
        self.min_length = check_integer("min_length", min_length, minimum=0)
        if min_length >= max_length:
            raise OptionError("min_length", min_length, f"must be below max_length, {max_length}")
        self.length_penalty = check_real("length_penalty", length_penalty, minimum=0)
        self.block_ngrams = check_integer("block_ngrams", block_ngrams, minimum=0)
        self.forbidden = [check_integer("forbidden", token, minimum=0) for token in forbidden]

    def changed(self, **options: Any) -> "BeamSearch":
        """Return the same search with some options changed."""
        return BeamSearch(**{**{name: getattr(self, name) for name in signature(BeamSearch).parameters}, **options})

    @torch.no_grad()
    def __call__(
        self, step: Callable[[Any, Tensor], tuple[Tensor, Any]], state: Any, *, start: int, stop: int
    ) -> Hypotheses:
        """Search for the best sequences.

        Args:
            step: maps a state and the next input tokens (B · K,) to log-probabilities (B · K, V) of the tokens that
                follow, V ≥ 2, and the new state. The hypotheses of a row are consecutive.
            state: initial state, a structure of tensors whose first dimension is B; at least one has a floating-point
                dtype.
            start: first input token.
            stop: token that ends a sequence.
        """
        beam = self.beam
        like = next(leaf for leaf in tree_leaves(state) if leaf.is_floating_point())
        rows, device = len(like), like.device
        first = torch.arange(rows, device=device).unsqueeze(1) * beam  # index of each row's first hypothesis
        state = reorder(state, torch.arange(rows, device=device).repeat_interleave(beam))
        tokens = torch.full((rows, beam, self.max_length), stop, device=device)
        # The hypotheses of a row are equal at the start, so that only one of them counts.
        scores = torch.full((rows, beam), -math.inf, device=device, dtype=torch.promote_types(like.dtype, torch.float))
        scores[:, 0] = 0.0
        finished = _Finished(tokens, scores)
        last = torch.full((rows * beam,), start, device=device)
        for length in range(1, self.max_length + 1):
            log_probabilities, state = step(state, last)
            sums = scores.view(-1, 1) + log_probabilities.to(scores.dtype)
            self._ban_(sums, tokens.flatten(0, 1)[:, : length - 1], stop)
            best, places = sums.view(rows, -1).topk(2 * beam, dim=1)
            parents, words = places // sums.shape[1], places % sums.shape[1]
            written = _pick(tokens, parents)
            written[:, :, length - 1] = words

            is_end = words == stop
            before = (~is_end).cumsum(dim=1)  # number of better candidates that continue
            finished.add(is_end & (before < beam) & best.isfinite(), written, self._normalize(best, length), length)
            if finished.is_full():
                break
            chosen = is_end.long().argsort(dim=1, stable=True)[:, :beam]  # candidates that continue, best first
            scores = best.gather(1, chosen).masked_fill(is_end.gather(1, chosen), -math.inf)
            tokens = _pick(written, chosen)
            last = words.gather(1, chosen).flatten()
            state = reorder(state, (first + parents.gather(1, chosen)).flatten())
        return finished.best(tokens, self._normalize(scores, length), length)

    def _ban_(self, sums: Tensor, tokens: Tensor, stop: int) -> None:
        """Set the sums (R, V) of tokens that must not follow the tokens (R, t) to −∞."""
        length, size = tokens.shape[1], self.block_ngrams
        banned = [*self.forbidden, *([stop] if length < self.min_length else [])]
        if banned:
            sums.index_fill_(1, torch.tensor(banned, device=tokens.device), -math.inf)
        if 0 < size <= length:
            ngrams = tokens.unfold(1, size, 1)  # (R, t − n + 1, n)
            repeats = (ngrams[..., :-1] == tokens[:, None, length - size + 1 :]).all(dim=-1)
            # Added, because another n-gram that is not repeated may end with the same token.
            sums.scatter_add_(1, ngrams[..., -1], sums.new_zeros(repeats.shape).masked_fill_(repeats, -math.inf))

    def _normalize(self, scores: Tensor, length: int) -> Tensor:
        return scores / length**self.length_penalty


class _Finished:
    """Finished sequences, up to K for each of B rows, in buffers like tokens (B, K, L) and scores (B, K)."""

    def __init__(self, tokens: Tensor, scores: Tensor) -> None:
        self.beam = tokens.shape[1]
        # Candidates that do not count go to the additional last position.
        self.tokens = torch.cat([tokens, tokens[:, :1]], dim=1)
        self.scores = scores.new_full(self.tokens.shape[:2], -math.inf)
        self.lengths = tokens.new_zeros(self.tokens.shape[:2])
        self.count = tokens.new_zeros(len(tokens), 1)

    def add(self, is_end: Tensor, tokens: Tensor, scores: Tensor, length: int) -> None:
        """Add the candidates among tokens (B, C, L) that `is_end` marks, best first, up to K per row."""
        places = (self.count + is_end.cumsum(dim=1) - 1).where(is_end, self.beam).clamp(max=self.beam)
        self.tokens.scatter_(1, places.unsqueeze(2).expand_as(tokens), tokens)
        self.scores.scatter_(1, places, scores)
        self.lengths.scatter_(1, places, torch.full_like(places, length))
        self.count = (self.count + is_end.sum(dim=1, keepdim=True)).clamp(max=self.beam)

    def is_full(self) -> bool:
        """Return whether every row has K sequences."""
        return bool((self.count == self.beam).all())

    def best(self, tokens: Tensor, scores: Tensor, length: int) -> Hypotheses:
        """Return the sequences, best first; rows without one have those that reached the maximum length."""
        none = self.count == 0
        tokens = torch.where(none.unsqueeze(2), tokens, self.tokens[:, :-1])
        scores, order = torch.where(none, scores, self.scores[:, :-1]).sort(dim=1, descending=True, stable=True)
        lengths = torch.where(none, length, self.lengths[:, :-1]).gather(1, order)
        return Hypotheses(_pick(tokens, order), lengths.masked_fill(scores.isneginf(), 0), scores)


def _pick(sequences: Tensor, places: Tensor) -> Tensor:
    """Return the sequences (B, K, L) at places (B, K) of (B, C, L)."""
    return sequences.gather(1, places.unsqueeze(2).expand(-1, -1, sequences.shape[2]))
