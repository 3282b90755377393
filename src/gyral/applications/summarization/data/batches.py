"""Batches of articles with summaries for a pointer-generator network (See et al. 2017)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.applications.summarization.data.corpus import SummaryCorpus
from gyral.applications.summarization.data.parsing import SPECIAL, START, STOP, Pair
from gyral.core.checks import check_choice, check_integer
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED, pad_rows
from gyral.data.vocabulary import PADDING_ID, UNKNOWN, Vocabulary

UNKNOWN_ID, START_ID, STOP_ID = map(SPECIAL.index, (UNKNOWN, START, STOP))


class SummaryBatch(NamedTuple):
    """A batch of B articles with their summaries. All tensors contain integers; V is the vocabulary size.

    Each word of an article that is outside the vocabulary has an extended number: V for the first such word in the
    article, V + 1 for the second, at every occurrence. In another article, V is another word.

    Attributes:
        article: (B, S) word numbers, `<unk>` for words outside the vocabulary, padded at the end with `<pad>`.
        article_extended: (B, S) the same with extended numbers.
        lengths: (B,) number of words in each article, at least 1.
        inputs: (B, T) decoder inputs: `<s>` and the summary, without extended numbers, padded with `<pad>`.
        targets: (B, T) decoder targets: the summary and `</s>`. A word outside the vocabulary has its extended number
            if it occurs in the article; otherwise it is `<unk>`. Padding is `IGNORED`. A truncated summary has no
            `</s>`.
        own_words: (B, `extra`) for the extended numbers V, V + 1, …, the word's number in the corpus's word list;
            padded with `<pad>`.
        rows: (B,) indices of the pairs in their split.
    """

    article: Tensor
    article_extended: Tensor
    lengths: Tensor
    inputs: Tensor
    targets: Tensor
    own_words: Tensor
    rows: Tensor

    @property
    def extra(self) -> int:
        """The maximum, over the articles, of the number of different words outside the vocabulary."""
        return self.own_words.shape[1]


class GivenPairs(NamedTuple):
    """Pairs in memory, with the attributes of a `SummaryCorpus` that `EncodedSummaries` needs.

    Attributes:
        vocabulary: vocabulary of the model.
        words: words of the vocabulary, followed by the words of the pairs that are outside it.
        tokens, bounds: as in `SummaryCorpus`.
    """

    vocabulary: Vocabulary
    words: list[str]
    tokens: dict[str, np.ndarray]
    bounds: dict[str, np.ndarray]


def encode_pairs(pairs: Sequence[Pair], vocabulary: Vocabulary) -> GivenPairs:
    """Encode pairs with the word numbers of a vocabulary; they become the split "test"."""
    index = dict(vocabulary.index)
    tokens: list[int] = []
    bounds = [0]
    for pair in pairs:
        tokens += [index.setdefault(word, len(index)) for word in pair.article]
        bounds.append(len(tokens))
        for sentence in pair.sentences:
            tokens += [index.setdefault(word, len(index)) for word in (*sentence, STOP)]
        bounds.append(len(tokens))
    numbers = {"test": np.array(tokens, dtype=np.uint32)}
    return GivenPairs(vocabulary, list(index), numbers, {"test": np.array(bounds)})


class EncodedSummaries:
    """The pairs of a split, truncated to maximum lengths.

    Args:
        corpus: corpus that contains the split.
        split: "train", "val" or "test".
        max_article: maximum number of words of an article; the rest is dropped.
        max_summary: maximum number of decoder steps, including the step for `</s>`.

    Attributes:
        split: as given.
        lengths: (n,) number of words in each article, after truncation.

    Raises:
        OptionError: an unknown split, or a maximum below 1.
    """

    def __init__(
        self, corpus: SummaryCorpus | GivenPairs, split: str, *, max_article: int = 400, max_summary: int = 100
    ) -> None:
        self.corpus = corpus
        self.split = split
        self.max_article = check_integer("max_article", max_article)
        self.max_summary = check_integer("max_summary", max_summary)
        self._bounds, self._tokens = corpus.bounds[check_choice("split", split, SPLITS)], corpus.tokens[split]
        self.lengths = np.minimum(np.diff(self._bounds)[::2], max_article)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: np.ndarray) -> SummaryBatch:
        """Return the pairs with the given indices as one batch.

        Args:
            rows: (B,) indices, B ≥ 1.
        """
        pairs = [self._pair(row) for row in rows.tolist()]
        articles, extended, inputs, targets, own_words = (list(column) for column in zip(*pairs, strict=True))
        return SummaryBatch(
            _pad(articles, PADDING_ID),
            _pad(extended, PADDING_ID),
            torch.from_numpy(self.lengths[rows]),
            _pad(inputs, PADDING_ID),
            _pad(targets, IGNORED),
            _pad(own_words, PADDING_ID),
            torch.from_numpy(rows.astype(np.int64)),
        )

    def _pair(self, row: int) -> tuple[np.ndarray, ...]:
        size = len(self.corpus.vocabulary)
        article, summary = self._numbers(row)
        article = article[: self.max_article]
        # words outside the vocabulary, in the order of their first occurrence
        outside, first = np.unique(article[article >= size], return_index=True)
        own_words = outside[np.argsort(first)]
        targets = self._targets(summary)
        inputs = np.insert(targets[:-1], 0, START_ID)
        return (
            np.where(article < size, article, UNKNOWN_ID),
            _extend(article, own_words, size),
            np.where(inputs < size, inputs, UNKNOWN_ID),
            _extend(targets, own_words, size),
            own_words,
        )

    def summary(self, row: int) -> np.ndarray:
        """Return (T,) targets without extended numbers: words outside the vocabulary are `<unk>`."""
        size = len(self.corpus.vocabulary)
        targets = self._targets(self._numbers(row)[1])
        return np.where(targets < size, targets, UNKNOWN_ID)

    def _targets(self, summary: np.ndarray) -> np.ndarray:
        summary = summary[summary != STOP_ID]  # remove sentence ends
        complete = len(summary) < self.max_summary
        return np.append(summary, STOP_ID) if complete else summary[: self.max_summary]

    def _numbers(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        start, middle, end = self._bounds[2 * row : 2 * row + 3]
        tokens = np.asarray(self._tokens[start:end]).astype(np.int64)
        return tokens[: middle - start], tokens[middle - start :]

    def article(self, row: int) -> list[str]:
        """Return all words of an article, without truncation."""
        return [self.corpus.words[number] for number in self._numbers(row)[0]]

    def reference(self, row: int) -> list[list[str]]:
        """Return all sentences of a summary as lists of words, without truncation."""
        sentences: list[list[str]] = [[]]
        for number in self._numbers(row)[1]:
            if number == STOP_ID:
                sentences.append([])
            else:
                sentences[-1].append(self.corpus.words[number])
        return sentences[:-1]

    def words(self, numbers: Iterable[int], own_words: Tensor) -> list[str]:
        """Return the words of a generated summary, up to `</s>`.

        Args:
            numbers: word numbers after `<s>`, including extended numbers.
            own_words: (extra,) row of `SummaryBatch.own_words` of the article.

        Raises:
            IndexError: an extended number is not in the row.
        """
        size, own = len(self.corpus.vocabulary), own_words.tolist()
        words = []
        for number in map(int, numbers):
            if number == STOP_ID:
                break
            words.append(self.corpus.words[number if number < size else own[number - size]])
        return words


def _extend(numbers: np.ndarray, own_words: np.ndarray, size: int) -> np.ndarray:
    """Replace words outside the vocabulary by their extended numbers, or by `<unk>` if they have none."""
    extended = np.where(numbers < size, numbers, UNKNOWN_ID)
    outside = np.flatnonzero(numbers >= size)
    places = numbers[outside][:, None] == own_words
    extended[outside] = np.where(places.any(1), size + places.argmax(1) if len(own_words) else 0, UNKNOWN_ID)
    return extended


def _pad(rows: list[np.ndarray], padding: int) -> Tensor:
    """Return rows of different lengths as one tensor, padded at the end."""
    return torch.from_numpy(pad_rows(rows, padding))
