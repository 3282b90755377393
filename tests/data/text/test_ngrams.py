"""n-gram models: equal to counting in dictionaries, probabilities that add up, known figures of the Penn Treebank."""

import os
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.data.text import ngrams
from gyral.data.text.corpora import Corpus, load, load_file
from gyral.data.text.ngrams import evaluate, witten_bell

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[3] / "data"))


def naive(train: list[int], scored: list[int], size: int, order: int) -> list[float]:
    """The formula with dictionaries."""
    follows: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for end in range(len(train)):
        for length in range(min(order - 1, end) + 1):
            follows[tuple(train[end - length : end])][train[end]] += 1

    def probability(symbol: int, context: tuple[int, ...] | None) -> float:
        if context is None:
            return 1 / size
        shorter = probability(symbol, context[1:] if context else None)
        after = follows.get(context)
        if after is None:
            return shorter
        return (after[symbol] + len(after) * shorter) / (after.total() + len(after))

    return [probability(scored[end], tuple(scored[max(end - order + 1, 0) : end])) for end in range(len(scored))]


@pytest.mark.parametrize("size", [2, 5, 300])
def test_probabilities_equal_a_count_in_dictionaries(size: int) -> None:
    random = np.random.default_rng(size)
    # some symbols more often than others, and one that training does not have
    train = (random.random(400) ** 2 * (size - 1)).astype(np.uint16)
    scored = (random.random(150) ** 2 * size).astype(np.uint16)
    probabilities = witten_bell(train, scored, size, 6)
    assert probabilities.shape == (6, 150)
    for order in range(1, 7):
        expected = naive(train.tolist(), scored.tolist(), size, order)
        np.testing.assert_allclose(probabilities[order - 1], expected, rtol=1e-12)


def test_probabilities_of_a_small_example() -> None:
    # training a b a: c(a) = 2, c(b) = 1, T = 2; of the context a: c(a b) = 1, T(a) = 1
    probabilities = witten_bell(np.array([0, 1, 0]), np.array([0, 1]), 4, 2)
    first, second = (2 + 2 / 4) / 5, (1 + 2 / 4) / 5
    np.testing.assert_allclose(probabilities, [[first, second], [first, (1 + second) / 2]])


def test_probabilities_of_all_symbols_add_up_to_one() -> None:
    random = np.random.default_rng(0)
    train = random.integers(0, 5, 300)
    for context in random.integers(0, 6, (20, 3)):
        total = sum(witten_bell(train, np.append(context, symbol), 6, 4)[:, -1] for symbol in range(6))
        np.testing.assert_allclose(total, 1)


def test_a_text_shorter_than_the_order_is_scored_with_shorter_contexts() -> None:
    train = np.array([0, 1, 0, 1, 1, 0])
    np.testing.assert_allclose(witten_bell(train, np.array([1]), 2, 4)[:, 0], naive(train.tolist(), [1], 2, 1)[0])
    assert witten_bell(train, np.array([], dtype=np.int64), 2, 4).shape == (4, 0)


@pytest.mark.parametrize("order", [0, 7, 1.5])
def test_orders_without_data_are_refused(order: float) -> None:
    with pytest.raises(OptionError, match=r"^order=.*: must be an integer from 1 to 6$"):
        witten_bell(np.array([0, 1, 0, 1, 1, 0]), np.array([1]), 2, order)  # type: ignore[arg-type]


def test_scores_are_the_bits_and_perplexity_of_a_split(tmp_path: Path) -> None:
    corpus: Corpus = load_file(None, tmp_path)
    for split in ("val", "test"):
        scores = evaluate(corpus, 3, split)
        probabilities = witten_bell(corpus.splits["train"], corpus.splits[split], len(corpus.vocabulary), 3)
        assert [score.order for score in scores] == [1, 2, 3]
        for score, row in zip(scores, probabilities, strict=True):
            assert score.bits == pytest.approx(np.mean([-np.log2(p) for p in row]))
            assert score.perplexity == pytest.approx(np.exp(np.mean(-np.log(row))))
    assert scores[0].bits > 4 > scores[1].bits > 2 > scores[2].bits > 1


@pytest.mark.slow
def test_penn_treebank_by_characters(tmp_path: Path) -> None:
    if not (DATA / "ptb" / "ptb.char.train.txt").is_file():
        pytest.skip(f"no ptb/ptb.char.train.txt in {DATA} (set DATA_DIR)")
    (tmp_path / "ptb").symlink_to((DATA / "ptb").resolve())  # the cache is kept here
    bits = {score.order: score.bits for score in evaluate(load("ptb_char", tmp_path), 7)}
    expected = {1: 4.346, 3: 2.648, 5: 1.691, 7: 1.539}
    assert {order: bits[order] for order in expected} == pytest.approx(expected, abs=1e-3)


def test_scores_are_kept_by_the_content_of_the_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (tmp_path / name for name in ("first.txt", "second.txt"))
    first.write_text("abcabcabd" * 100)
    second.write_text("abcabcabd" * 99 + "abcabcaba")
    (tmp_path / "file").write_text("")
    kept = [tmp_path / "file" / "in", tmp_path / "kept"]
    texts = [load_file(path, tmp_path) for path in (first, second)]
    scores = [ngrams.evaluate_once(text, 3, kept) for text in texts]
    assert scores == [ngrams.evaluate(text, 3) for text in texts]
    files = sorted((tmp_path / "kept").iterdir())
    assert len(files) == 2
    monkeypatch.setattr(ngrams, "evaluate", lambda *_: pytest.fail("was done before"))
    assert [ngrams.evaluate_once(text, 3, kept) for text in texts] == scores
    monkeypatch.undo()
    for file in files:
        file.write_text("[[1,")
    assert [ngrams.evaluate_once(text, 3, kept) for text in texts] == scores
    for file in files:
        text = file.read_text()
        changed = text.replace("9", "8", 1)
        assert changed != text
        file.write_text(changed)
    assert [ngrams.evaluate_once(text, 3, kept) for text in texts] == scores
