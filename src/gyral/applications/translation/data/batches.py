"""Batches of encoded pairs of sentences."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.applications.translation.data.corpus import START_ID, STOP_ID, TranslationCorpus
from gyral.core.checks import check_choice
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED, pad_rows
from gyral.data.vocabulary import PADDING_ID


class TranslationBatch(NamedTuple):
    """A batch of B pairs; all tensors contain integers.

    Attributes:
        source: (B, S) subwords and `</s>`, padded at the end with `<pad>`.
        lengths: (B,) number of steps of each source, at least 1.
        inputs: (B, T) decoder inputs: `<s>` and the target, padded with `<pad>`.
        targets: (B, T) decoder targets: the target and `</s>`, padded with `IGNORED`.
        rows: (B,) indices of the pairs in their split.
    """

    source: Tensor
    lengths: Tensor
    inputs: Tensor
    targets: Tensor
    rows: Tensor


class EncodedPairs:
    """The pairs of a split.

    Args:
        corpus: corpus that contains the split.
        split: "train", "val" or "test".
        longest: pairs with more subwords than this on either side are left out; None: none.

    Attributes:
        split: as given.
        rows: (n,) indices in the split of the pairs that are not left out.
        lengths: (n,) number of subwords of the longer side of each pair.

    Raises:
        OptionError: an unknown split.
    """

    def __init__(self, corpus: TranslationCorpus, split: str, longest: int | None = None) -> None:
        self.corpus = corpus
        self.split = split
        self._bounds, self._tokens = corpus.bounds[check_choice("split", split, SPLITS)], corpus.tokens[split]
        lengths = np.diff(self._bounds).reshape(-1, 2).max(axis=1)
        self.rows = np.flatnonzero(lengths <= (np.inf if longest is None else longest))
        self.lengths = lengths[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: np.ndarray) -> TranslationBatch:
        """Return the pairs with the given indices, (B,), B ≥ 1, as one batch."""
        pairs = [self._pair(row) for row in self.rows[rows].tolist()]
        return assemble([source for source, _ in pairs], [target for _, target in pairs], self.rows[rows])

    def _pair(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        start, middle, end = self._bounds[2 * row : 2 * row + 3]
        return self._tokens[start:middle], self._tokens[middle:end]

    def targets(self) -> np.ndarray:
        """Return the subwords of the targets of all pairs, without `</s>`."""
        starts, ends = self._bounds[1::2][self.rows], self._bounds[2::2][self.rows]
        inside = np.zeros(self._bounds[-1] + 1, dtype=np.int8)
        inside[starts] += 1
        np.subtract.at(inside, ends, 1)
        return np.asarray(self._tokens[: self._bounds[-1]])[inside.cumsum(dtype=np.int8)[:-1].astype(bool)]


def assemble(
    sources: Sequence[Sequence[int] | np.ndarray], targets: Sequence[Sequence[int] | np.ndarray], rows: np.ndarray
) -> TranslationBatch:
    """Return a batch of encoded sentences, without special symbols."""
    ended = [np.append(source, STOP_ID) for source in sources]
    return TranslationBatch(
        torch.from_numpy(pad_rows(ended, PADDING_ID)),
        torch.tensor([len(source) for source in ended]),
        torch.from_numpy(pad_rows([np.insert(np.asarray(target), 0, START_ID) for target in targets], PADDING_ID)),
        torch.from_numpy(pad_rows([np.append(target, STOP_ID) for target in targets], IGNORED)),
        torch.from_numpy(rows.astype(np.int64)),
    )
