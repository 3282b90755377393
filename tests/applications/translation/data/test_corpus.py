"""Corpora of pairs: subwords, cache, batches."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyral.applications.translation.data.batches import EncodedPairs
from gyral.applications.translation.data.corpus import START_ID, STOP_ID, TranslationCorpus, load
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from tests.applications.translation.small import PAIRS, PARTS


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "user"))


def made(folder: Path, **options: Any) -> TranslationCorpus:
    paths = {split: f"{PAIRS}[{taken}]" for split, taken in PARTS.items()}
    return load(folder, **{**paths, "size": 80, **options})


def test_a_corpus_is_prepared_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first = made(tmp_path)
    assert "preparing translation, once" in caplog.text
    assert "train: 60 pairs" in caplog.text
    caplog.clear()
    again = made(tmp_path)
    assert "preparing" not in caplog.text
    assert again.model == first.model
    assert all(np.array_equal(again.tokens[split], first.tokens[split]) for split in PARTS)
    assert made(tmp_path, size=90).size == 90
    assert made(tmp_path, kind="unigram").pieces != first.pieces


def test_subwords_become_the_text_again(tmp_path: Path) -> None:
    corpus = made(tmp_path)
    assert [corpus.subwords.id_to_piece(number) for number in range(4)] == ["<pad>", "<unk>", "<s>", "</s>"]
    lines = [line.split("\t") for line in PAIRS.read_text().splitlines()]
    assert [list(corpus.pair("test", row)) for row in range(10)] == lines[70:]
    assert [list(corpus.pair("train", row)) for row in range(60)] == lines[:60]
    for split, start in (("train", 0), ("val", 60), ("test", 70)):
        encoded = EncodedPairs(corpus, split)
        batch = encoded.batch(np.arange(len(encoded)))
        for row, pair in enumerate(lines[start : start + len(encoded)]):
            target = batch.targets[row][batch.targets[row] != IGNORED].tolist()
            assert target[-1] == STOP_ID
            assert batch.inputs[row, : len(target)].tolist() == [START_ID, *target[:-1]]
            source = batch.source[row, : batch.lengths[row]].tolist()
            assert corpus.subwords.decode([source[:-1], target[:-1]]) == pair


def test_long_pairs_are_left_out_of_training(tmp_path: Path) -> None:
    corpus = made(tmp_path)
    whole = EncodedPairs(corpus, "train")
    longest = int(np.median(whole.lengths))
    kept = EncodedPairs(corpus, "train", longest)
    assert 0 < len(kept) < len(whole)
    assert kept.lengths.max() <= longest
    first = kept.batch(np.arange(1))
    assert first.rows[0] == kept.rows[0]
    assert max(first.lengths[0] - 1, len(first.targets[0]) - 1) == kept.lengths[0]
    for encoded in (whole, kept):
        targets = [token for row in encoded.rows for token in encoded._pair(row)[1].tolist()]
        assert encoded.targets().tolist() == targets


def test_a_damaged_cache_is_made_again(tmp_path: Path) -> None:
    corpus = made(tmp_path)
    (path,) = tmp_path.glob(".cache/*/subwords.npy")
    path.write_bytes(b"damaged")
    assert made(tmp_path).model == corpus.model


def test_what_cannot_be_prepared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^size=3000: sentencepiece learns no such subwords from .*pairs.tsv.*: .+"):
        made(tmp_path, size=3000)
    with pytest.raises(OptionError, match=r"^size=8: sentencepiece learns no such subwords from .*pairs.tsv.*: .+"):
        made(tmp_path, size=8)
    columns = [line.split("\t") for line in PAIRS.read_text().splitlines()]
    for name, column, count in (("a.en", 0, 40), ("a.de", 1, 35)):
        (tmp_path / name).write_text("\n".join(pair[column] for pair in columns[:count]) + "\n")
    with pytest.raises(OptionError, match=r"^train=\[.*\]: a\.de has 35 sentences, and the other file has more$"):
        made(tmp_path, train=[tmp_path / "a.en", tmp_path / "a.de"])
    with pytest.raises(OptionError, match="kind=char"):
        made(tmp_path, kind="char")
    for split in ("train", "test"):
        with pytest.raises(OptionError, match=rf"^{split}=.*: contains no pair"):
            made(tmp_path, **{split: f"{PAIRS}[500:]"})
