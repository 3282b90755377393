"""Beam search over whatever gives probabilities of a next token: all hypotheses of all sequences at once."""

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
    """The best sequences found for each of B rows, K for each, best first.

    Attributes:
        tokens: (B, K, L) what was written; filled up with the token that ends a sequence.
        lengths: (B, K) tokens written, the one that ends a sequence among them; 0 where fewer than K were found.
        scores: (B, K) log-probability of all of them divided by length^`length_penalty`; −∞ where fewer were found.
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor


class BeamSearch:
    """Beam search as See et al. (2017) decode summaries.

    At each step the 2K likeliest continuations of a row's K hypotheses are gone through, best first: one that ends is
    kept as finished, others go on, until K go on. The search of a row is over when K have finished, or at `max_length`;
    hypotheses that go on then count only if none has finished. The finished one with the largest score is the best:

        score = Σ_t log P(w_t) / length^length_penalty

    with the length counted in tokens written, the end among them. (The authors' code counts the start, too.) With K = 1
    this is greedy decoding.

    Args:
        beam: K.
        min_length: tokens before a sequence may end.
        max_length: tokens at most, the end among them.
        length_penalty: 0: scores are log-probabilities; 1: their means over tokens.
        block_ngrams: n: no n tokens in a row may stand twice in a sequence; 0: any may.
        forbidden: tokens that are never written.

    Raises:
        OptionError: an option out of bounds or of another type.
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
            raise OptionError(f"min_length={min_length}: must be below max_length, {max_length}")
        self.length_penalty = check_real("length_penalty", length_penalty, minimum=0)
        self.block_ngrams = check_integer("block_ngrams", block_ngrams, minimum=0)
        self.forbidden = [check_integer("forbidden", token, minimum=0) for token in forbidden]

    def changed(self, **options: Any) -> "BeamSearch":
        """Return the same search with other options."""
        return BeamSearch(**{**{name: getattr(self, name) for name in signature(BeamSearch).parameters}, **options})

    @torch.no_grad()
    def __call__(
        self, step: Callable[[Any, Tensor], tuple[Tensor, Any]], state: Any, *, start: int, stop: int
    ) -> Hypotheses:
        """Search.

        Args:
            step: from a state and the tokens (B · K,) read next to log-probabilities (B · K, V) of the tokens after
                them, V ≥ 2, and the new state. The hypotheses of a row stand next to each other.
            state: before the first step: a structure of tensors whose first dimension is B, one of them not of
                integers.
            start: the token read first.
            stop: the token that ends a sequence.
        """
        beam = self.beam
        like = next(leaf for leaf in tree_leaves(state) if leaf.is_floating_point())
        rows, device = len(like), like.device
        first = torch.arange(rows, device=device).unsqueeze(1) * beam  # of the rows of each sequence's hypotheses
        state = reorder(state, torch.arange(rows, device=device).repeat_interleave(beam))
        tokens = torch.full((rows, beam, self.max_length), stop, device=device)
        # a row's hypotheses are alike at the start: all but one are out
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
            before = (~is_end).cumsum(dim=1)  # candidates that go on and are better
            finished.add(is_end & (before < beam) & best.isfinite(), written, self._normalize(best, length), length)
            if finished.is_full():
                break
            going = is_end.long().argsort(dim=1, stable=True)[:, :beam]  # those that go on, best first
            scores = best.gather(1, going).masked_fill(is_end.gather(1, going), -math.inf)
            tokens = _pick(written, going)
            last = words.gather(1, going).flatten()
            state = reorder(state, (first + parents.gather(1, going)).flatten())
        return finished.best(tokens, self._normalize(scores, length), length)

    def _ban_(self, sums: Tensor, tokens: Tensor, stop: int) -> None:
        """Set those of the sums (R, V) to −∞ whose token may not follow the tokens (R, t)."""
        length, size = tokens.shape[1], self.block_ngrams
        banned = [*self.forbidden, *([stop] if length < self.min_length else [])]
        if banned:
            sums.index_fill_(1, torch.tensor(banned, device=tokens.device), -math.inf)
        if 0 < size <= length:
            ngrams = tokens.unfold(1, size, 1)  # (R, t − n + 1, n)
            repeats = (ngrams[..., :-1] == tokens[:, None, length - size + 1 :]).all(dim=-1)
            # added, since another n-gram may end in the same token and not be repeated
            sums.scatter_add_(1, ngrams[..., -1], sums.new_zeros(repeats.shape).masked_fill_(repeats, -math.inf))

    def _normalize(self, scores: Tensor, length: int) -> Tensor:
        return scores / length**self.length_penalty


class _Finished:
    """Sequences that have ended, up to K for each of B rows; made like tokens (B, K, L) and scores (B, K)."""

    def __init__(self, tokens: Tensor, scores: Tensor) -> None:
        self.beam = tokens.shape[1]
        # one more place, for what does not count
        self.tokens = torch.cat([tokens, tokens[:, :1]], dim=1)
        self.scores = scores.new_full(self.tokens.shape[:2], -math.inf)
        self.lengths = tokens.new_zeros(self.tokens.shape[:2])
        self.count = tokens.new_zeros(len(tokens), 1)

    def add(self, is_end: Tensor, tokens: Tensor, scores: Tensor, length: int) -> None:
        """Add those of C candidates, tokens (B, C, L), that `is_end` tells, best first, as long as there is room."""
        places = (self.count + is_end.cumsum(dim=1) - 1).where(is_end, self.beam).clamp(max=self.beam)
        self.tokens.scatter_(1, places.unsqueeze(2).expand_as(tokens), tokens)
        self.scores.scatter_(1, places, scores)
        self.lengths.scatter_(1, places, torch.full_like(places, length))
        self.count = (self.count + is_end.sum(dim=1, keepdim=True)).clamp(max=self.beam)

    def is_full(self) -> bool:
        """Tell whether there are K in every row."""
        return bool((self.count == self.beam).all())

    def best(self, tokens: Tensor, scores: Tensor, length: int) -> Hypotheses:
        """Return them, best first; in rows without any those that were cut off at the maximum length."""
        none = self.count == 0
        tokens = torch.where(none.unsqueeze(2), tokens, self.tokens[:, :-1])
        scores, order = torch.where(none, scores, self.scores[:, :-1]).sort(dim=1, descending=True, stable=True)
        lengths = torch.where(none, length, self.lengths[:, :-1]).gather(1, order)
        return Hypotheses(_pick(tokens, order), lengths.masked_fill(scores.isneginf(), 0), scores)


def _pick(sequences: Tensor, places: Tensor) -> Tensor:
    """Return of (B, C, L) the sequences at places (B, K), (B, K, L)."""
    return sequences.gather(1, places.unsqueeze(2).expand(-1, -1, sequences.shape[2]))
