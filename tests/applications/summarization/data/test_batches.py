"""Batches of summaries: extended numbers, cuts, padding, words from numbers, streams."""

from functools import partial

import numpy as np
import pytest
import torch

from gyral.applications.summarization.data.batches import UNKNOWN_ID, EncodedSummaries, encode_pairs
from gyral.applications.summarization.data.corpus import SummaryCorpus, load
from gyral.applications.summarization.data.parsing import Pair
from gyral.applications.summarization.data.sources import read_pairs
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, BucketedBatches, SortedBatches
from tests.applications.summarization.articles import article, write_lines

# a, b and . are in the vocabulary: 4, 5 and 6
ROWS = [
    {"article": "a new b odd new .", "highlights": ["odd a .", "new gone ."]},
    {"article": "odd b", "highlights": ["b"]},
    {"article": "a b a", "highlights": ["fresh"]},
]
ARTICLES = 133
FREQUENT = {"article": "a a a a b b b .", "highlights": [". ."]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> SummaryCorpus:
    """A corpus that several processes have prepared."""
    folder = tmp_path_factory.mktemp("data")
    train = write_lines(folder / "train.jsonl", [FREQUENT] * 9)
    val = write_lines(folder / "val.jsonl", ROWS)
    test = write_lines(folder / "test.jsonl", [article(number, 4 + number % 50) for number in range(ARTICLES)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GYRAL_CACHE", str(folder / "user"))
        return load(folder, train=train, val=val, test=test, processes=2)


def test_a_batch(corpus: SummaryCorpus) -> None:
    assert corpus.vocabulary.symbols == ("<pad>", "<unk>", "<s>", "</s>", "a", ".", "b")
    encoded = EncodedSummaries(corpus, "val")
    batch = encoded.batch(np.array([0, 1, 2]))
    size, a, stop, b, unknown = 7, 4, 5, 6, 1
    assert batch.article.tolist() == [
        [a, unknown, b, unknown, unknown, stop],
        [unknown, b, 0, 0, 0, 0],
        [a, b, a, 0, 0, 0],
    ]
    assert batch.article_extended.tolist() == [
        [a, size, b, size + 1, size, stop],  # new, odd: in the order in which they come
        [size, b, 0, 0, 0, 0],
        [a, b, a, 0, 0, 0],
    ]
    assert batch.lengths.tolist() == [6, 2, 3]
    assert batch.inputs.tolist() == [
        [2, unknown, a, stop, unknown, unknown, stop],
        [2, b, 0, 0, 0, 0, 0],
        [2, unknown, 0, 0, 0, 0, 0],
    ]
    assert batch.targets.tolist() == [
        [size + 1, a, stop, size, unknown, stop, 3],  # "gone" is not in the article
        [b, 3, *[IGNORED] * 5],
        [unknown, 3, *[IGNORED] * 5],
    ]
    assert batch.extra == 2
    assert [[corpus.words[number] for number in row] for row in batch.own_words.tolist()] == [
        ["new", "odd"],
        ["odd", "<pad>"],
        ["<pad>", "<pad>"],
    ]
    assert batch.rows.tolist() == [0, 1, 2]
    assert {tensor.dtype for tensor in batch} == {torch.int64}
    assert encoded.batch(np.array([2])).extra == 0
    assert encoded.batch(np.array([2])).own_words.shape == (1, 0)


def test_articles_and_summaries_are_cut(corpus: SummaryCorpus) -> None:
    cut = EncodedSummaries(corpus, "val", max_article=3, max_summary=6)
    batch = cut.batch(np.array([0]))
    assert batch.article_extended.tolist() == [[4, 7, 6]]
    assert batch.lengths.tolist() == cut.lengths[:1].tolist() == [3]
    assert batch.extra == 1
    # "odd" is beyond the maximum length, and there is no step for </s>
    assert batch.targets.tolist() == [[1, 4, 5, 7, 1, 5]]
    assert batch.inputs.tolist() == [[2, 1, 4, 5, 1, 1]]
    one_more = EncodedSummaries(corpus, "val", max_summary=7).batch(np.array([0]))
    assert one_more.targets[0, -1] == 3
    shortest = EncodedSummaries(corpus, "val", max_article=1, max_summary=1).batch(np.array([0, 1]))
    assert [tensor.tolist() for tensor in shortest[:5]] == [[[4], [1]], [[4], [7]], [1, 1], [[2], [2]], [[1], [6]]]
    assert len(cut.article(0)) == 6  # the whole article


def test_words_of_numbers(corpus: SummaryCorpus) -> None:
    encoded = EncodedSummaries(corpus, "val")
    batch = encoded.batch(np.array([0, 1]))
    assert encoded.words(batch.targets[0], batch.own_words[0]) == ["odd", "a", ".", "new", "<unk>", "."]
    assert encoded.words([7, 8, 3, 4], batch.own_words[0]) == ["new", "odd"]
    assert encoded.words([7], batch.own_words[1]) == ["odd"]
    assert encoded.words([], batch.own_words[0]) == []
    with pytest.raises(IndexError):
        encoded.words([9], batch.own_words[0])
    assert encoded.reference(0) == [["odd", "a", "."], ["new", "gone", "."]]
    assert encoded.article(1) == ["odd", "b"]


def test_extended_numbers_decode_to_the_article(corpus: SummaryCorpus) -> None:
    encoded = EncodedSummaries(corpus, "test")
    batch = encoded.batch(np.arange(ARTICLES))
    for row, pair in enumerate(read_pairs(corpus.encoded.folder.parents[1] / "test.jsonl")):
        numbers = batch.article_extended[row, : batch.lengths[row]]
        assert encoded.words(numbers, batch.own_words[row]) == pair.article == encoded.article(row)
        summary = [word for sentence in pair.sentences for word in sentence]
        known = {*pair.article, *corpus.vocabulary.symbols}
        written = encoded.words(batch.targets[row].clamp(min=0), batch.own_words[row])
        assert written == [word if word in known else "<unk>" for word in summary]
        assert encoded.reference(row) == [list(sentence) for sentence in pair.sentences]
    assert int(batch.article_extended.max()) == len(corpus.vocabulary) + batch.extra - 1
    assert int(batch.article.max()) < len(corpus.vocabulary)
    assert int(batch.inputs.max()) < len(corpus.vocabulary)


def test_a_row_does_not_depend_on_the_batch(corpus: SummaryCorpus) -> None:
    encoded = EncodedSummaries(corpus, "test")
    together = encoded.batch(np.arange(50))
    for row in range(0, 50, 7):
        alone = encoded.batch(np.array([row]))
        for one, many in zip(alone, together, strict=True):
            assert torch.equal(one[0], many[row][..., : one.shape[1]] if one.ndim > 1 else many[row])


def test_streams_for_evaluation_and_training(corpus: SummaryCorpus) -> None:
    encoded = EncodedSummaries(corpus, "test")
    rows = torch.cat([batch.rows for batch in SortedBatches(encoded, 32)])
    assert sorted(rows.tolist()) == list(range(ARTICLES))
    stream = partial(BucketedBatches, encoded, 32, seed=1, length=8)
    whole = list(stream())
    assert sorted(row for batch in whole[:5] for row in batch.rows.tolist()) == list(range(ARTICLES))
    resumed = stream()
    resumed.load_state_dict({"position": 3})
    for left, right in zip(whole[3:], resumed, strict=True):
        assert all(map(torch.equal, left, right))


def test_wrong_options_are_refused(corpus: SummaryCorpus) -> None:
    with pytest.raises(OptionError, match=r"^split=dev: must be one of train, val, test$"):
        EncodedSummaries(corpus, "dev")
    with pytest.raises(OptionError, match=r"^max_article=0: must be an integer ≥ 1$"):
        EncodedSummaries(corpus, "val", max_article=0)
    with pytest.raises(OptionError, match=r"^max_summary=0: must be an integer ≥ 1$"):
        EncodedSummaries(corpus, "val", max_summary=0)


def test_pairs_in_memory_equal_pairs_of_a_corpus(corpus: SummaryCorpus) -> None:
    whole = EncodedSummaries(corpus, "test", max_article=9, max_summary=7)
    rows = np.arange(len(whole))
    pairs = [Pair(whole.article(row), tuple(whole.reference(row)), []) for row in rows.tolist()]
    given = EncodedSummaries(encode_pairs(pairs, corpus.vocabulary), "test", max_article=9, max_summary=7)
    expected, found = whole.batch(rows), given.batch(rows)
    for name in ("article", "article_extended", "lengths", "inputs", "targets", "rows"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    for row, (own, known) in enumerate(zip(found.own_words, expected.own_words, strict=True)):
        assert given.words(found.targets[row].clamp(min=0), own) == whole.words(
            expected.targets[row].clamp(min=0), known
        )
        assert (given.article(row), given.reference(row)) == (whole.article(row), whole.reference(row))


def test_without_extended_numbers_a_word_outside_the_vocabulary_is_unknown(corpus: SummaryCorpus) -> None:
    encoded = EncodedSummaries(corpus, "test", max_summary=7)
    for row in range(len(encoded)):
        targets = encoded.batch(np.array([row])).targets[0]
        expected = targets.where(targets < len(corpus.vocabulary), UNKNOWN_ID)
        assert encoded.summary(row).tolist() == expected.tolist()
