"""Articles with summaries as a pointer-generator network (See et al. 2017) reads them, and batches of them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_choice, check_integer
from gyral.data.batching import IGNORED
from gyral.data.summaries.articles import PADDING, SPECIAL, START, STOP, UNKNOWN, Pair
from gyral.data.summaries.corpus import SummaryCorpus
from gyral.data.text.corpora import SPLITS
from gyral.data.vocabulary import Vocabulary

PADDING_ID, UNKNOWN_ID, START_ID, STOP_ID = map(SPECIAL.index, (PADDING, UNKNOWN, START, STOP))


class SummaryBatch(NamedTuple):
    """A batch of B articles with their summaries; V is the vocabulary's size. All are integers.

    A word of an article that the vocabulary lacks has an extended number: V for the article's first such word, V + 1
    for its second, the same wherever it occurs there. Another article's V is another word.

    Attributes:
        article: (B, S) numbers of words, `<unk>` for those that the vocabulary lacks, filled up behind with `<pad>`.
        article_extended: (B, S) the same with extended numbers.
        lengths: (B,) words of each article, at least 1.
        inputs: (B, T) what the decoder reads: `<s>` and the summary, without extended numbers, filled up with `<pad>`.
        targets: (B, T) what it is to write: the summary and `</s>`. A word that the vocabulary lacks has its extended
            number if it is in the article, else it is `<unk>`. `IGNORED` where it is filled up. A summary that was cut
            off has no `</s>`.
        own_words: (B, `extra`) the words that the extended numbers V, V + 1, … stand for, by their numbers in the
            corpus's list; filled up with `<pad>`.
        rows: (B,) numbers of the pairs in their split.
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
        """The largest number of words that one of the articles has and the vocabulary lacks."""
        return self.own_words.shape[1]


class GivenPairs(NamedTuple):
    """Pairs in memory, what `EncodedSummaries` takes of a `SummaryCorpus`: `words` are those of the vocabulary, then
    those of the pairs that it lacks."""

    vocabulary: Vocabulary
    words: list[str]
    tokens: np.ndarray
    bounds: dict[str, np.ndarray]


def number(pairs: Sequence[Pair], vocabulary: Vocabulary) -> GivenPairs:
    """Return some pairs, the split "test", with the numbers that a vocabulary gives their words."""
    index = dict(vocabulary.index)
    tokens: list[int] = []
    bounds = [0]
    for pair in pairs:
        tokens += [index.setdefault(word, len(index)) for word in pair.article]
        bounds.append(len(tokens))
        for sentence in pair.sentences:
            tokens += [index.setdefault(word, len(index)) for word in (*sentence, STOP)]
        bounds.append(len(tokens))
    return GivenPairs(vocabulary, list(index), np.array(tokens, dtype=np.uint32), {"test": np.array(bounds)})


class EncodedSummaries:
    """The pairs of a split, cut to the lengths that a network reads.

    Args:
        corpus: where they are.
        split: "train", "val" or "test".
        max_article: words of an article that are read, its first ones.
        max_summary: decoder steps, those of the summary's first words; its end is a step, too.

    Attributes:
        split: as given.
        lengths: (n,) words of each article, after the cut.

    Raises:
        OptionError: another split; a length below 1.
    """

    def __init__(
        self, corpus: SummaryCorpus | GivenPairs, split: str, *, max_article: int = 400, max_summary: int = 100
    ) -> None:
        self.corpus = corpus
        self.split = split
        self.max_article = check_integer("max_article", max_article)
        self.max_summary = check_integer("max_summary", max_summary)
        self._bounds = corpus.bounds[check_choice("split", split, SPLITS)]
        self.lengths = np.minimum(np.diff(self._bounds)[::2], max_article)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: np.ndarray) -> SummaryBatch:
        """Return some pairs.

        Args:
            rows: (B,) their numbers, B ≥ 1.
        """
        pairs = [self._pair(row) for row in rows.tolist()]
        articles, extended, inputs, targets, own_words = (list(column) for column in zip(*pairs, strict=True))
        return SummaryBatch(
            _filled(articles, PADDING_ID),
            _filled(extended, PADDING_ID),
            torch.from_numpy(self.lengths[rows]),
            _filled(inputs, PADDING_ID),
            _filled(targets, IGNORED),
            _filled(own_words, PADDING_ID),
            torch.from_numpy(rows.astype(np.int64)),
        )

    def _pair(self, row: int) -> tuple[np.ndarray, ...]:
        size = len(self.corpus.vocabulary)
        article, summary = self._numbers(row)
        article = article[: self.max_article]
        # the words it lacks, in the order of their first places
        lacking, first = np.unique(article[article >= size], return_index=True)
        own_words = lacking[np.argsort(first)]
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
        """Return what a network without extended numbers is to write, (T,): words that the vocabulary lacks `<unk>`."""
        size = len(self.corpus.vocabulary)
        targets = self._targets(self._numbers(row)[1])
        return np.where(targets < size, targets, UNKNOWN_ID)

    def _targets(self, summary: np.ndarray) -> np.ndarray:
        summary = summary[summary != STOP_ID]  # between its sentences
        whole = len(summary) < self.max_summary
        return np.append(summary, STOP_ID) if whole else summary[: self.max_summary]

    def _numbers(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        start, middle, end = self._bounds[2 * row : 2 * row + 3]
        tokens = np.asarray(self.corpus.tokens[start:end]).astype(np.int64)
        return tokens[: middle - start], tokens[middle - start :]

    def article(self, row: int) -> list[str]:
        """Return the words of an article, all of them."""
        return [self.corpus.words[number] for number in self._numbers(row)[0]]

    def reference(self, row: int) -> list[list[str]]:
        """Return the sentences of a summary, all of them, as lists of words."""
        sentences: list[list[str]] = [[]]
        for number in self._numbers(row)[1]:
            if number == STOP_ID:
                sentences.append([])
            else:
                sentences[-1].append(self.corpus.words[number])
        return sentences[:-1]

    def words(self, numbers: Iterable[int], own_words: Tensor) -> list[str]:
        """Return the words that a network wrote, up to `</s>`.

        Args:
            numbers: of words, extended ones too, that came behind `<s>`.
            own_words: (extra,) the row of `SummaryBatch.own_words` that they extend.

        Raises:
            IndexError: an extended number that the row has not.
        """
        size, own = len(self.corpus.vocabulary), own_words.tolist()
        words = []
        for number in map(int, numbers):
            if number == STOP_ID:
                break
            words.append(self.corpus.words[number if number < size else own[number - size]])
        return words


def _extend(numbers: np.ndarray, own_words: np.ndarray, size: int) -> np.ndarray:
    """Return the numbers of words with the extended ones of those that the vocabulary lacks, if they have one."""
    extended = np.where(numbers < size, numbers, UNKNOWN_ID)
    lacking = np.flatnonzero(numbers >= size)
    places = numbers[lacking][:, None] == own_words
    extended[lacking] = np.where(places.any(1), size + places.argmax(1) if len(own_words) else 0, UNKNOWN_ID)
    return extended


def _filled(rows: list[np.ndarray], padding: int) -> Tensor:
    """Return rows of different lengths as one tensor, filled up behind."""
    filled = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    for place, row in zip(filled, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(filled)
