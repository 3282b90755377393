"""Corpora of articles with summaries: numbers and words, the cache, resuming, many processes, bounded memory."""

import gc
import itertools
import json
import logging
import os
import threading
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyral.applications.summarization.data.corpus import SummaryCorpus, load, load_cnn_dailymail
from gyral.applications.summarization.data.sources import read_pairs
from gyral.core.errors import OptionError, UserError
from gyral.core.measures import SPLITS
from gyral.data import preparation
from gyral.data.raw_examples import Report
from tests.applications.summarization.articles import article, example, write_chunk, write_lines, write_story
from tests.faults.damages import OTHERS

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[4] / "data"))
SIZES = {"train": 40, "val": 5, "test": 7}


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tests out of the user's cache, and make the parts small."""
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "user"))
    monkeypatch.setattr("gyral.data.preparation.BLOCK", 8)
    return tmp_path / "user"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Three splits of different articles."""
    start, paths = 0, {}
    for split, size in SIZES.items():
        rows = [article(number) for number in range(start, start + size)]
        paths[split] = write_lines(tmp_path / "data" / f"{split}.jsonl", rows)
        start += size
    return paths


def loaded(files: dict[str, Path], **options: Any) -> SummaryCorpus:
    return load(files["train"].parent, **{**files, "processes": 1, **options})  # type: ignore[arg-type]


def texts(corpus: SummaryCorpus, split: str) -> list[tuple[list[str], list[str]]]:
    pieces = [
        [corpus.words[number] for number in corpus.tokens[split][start:end].tolist()]
        for start, end in itertools.pairwise(corpus.bounds[split])
    ]
    return list(zip(pieces[::2], pieces[1::2], strict=True))


def test_every_word_of_every_split_is_kept(files: dict[str, Path]) -> None:
    corpus = loaded(files, size=20)
    for split in SPLITS:
        expected = [
            (pair.article, [word for sentence in pair.sentences for word in (*sentence, "</s>")])
            for pair in read_pairs(files[split])
        ]
        assert texts(corpus, split) == expected
        assert corpus.encoded.reports[split] == Report(SIZES[split])
        assert isinstance(corpus.tokens[split], np.memmap)
        assert not corpus.tokens[split].flags.writeable
    assert len(set(corpus.words)) == len(corpus.words)


def test_the_vocabulary_has_the_words_of_training_by_frequency(files: dict[str, Path]) -> None:
    counts = Counter[str]()
    for pair in read_pairs(files["train"]):
        counts.update([*pair.article, *(word for sentence in pair.sentences for word in sentence)])
    expected = ["<pad>", "<unk>", "<s>", "</s>", *sorted(counts, key=lambda word: (-counts[word], word))]
    corpus = loaded(files)
    assert list(corpus.vocabulary.symbols) == expected
    assert set(corpus.words[len(expected) :]) >= {"name40", "place51"}
    assert not set(corpus.words[len(expected) :]) & set(expected)
    small = loaded(files, size=10)
    assert list(small.vocabulary.symbols) == expected[:10]
    assert small.words == corpus.words
    assert small.encoded.folder == corpus.encoded.folder


def test_the_same_words_elsewhere_have_the_same_vocabulary(files: dict[str, Path], tmp_path: Path) -> None:
    rows = [json.loads(line) for line in files["train"].read_text().splitlines()]
    other = write_lines(tmp_path / "other" / "copy.jsonl", rows)
    first, second = loaded(files), load(tmp_path / "other", train=other, val=other, test=other, processes=1)
    assert first.encoded.folder != second.encoded.folder
    assert first.vocabulary.symbols == second.vocabulary.symbols


def test_a_prepared_corpus_is_not_prepared_again(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first = loaded(files)
    assert [path.name for path in first.encoded.folder.parent.iterdir() if not path.name.endswith(".lock")] == [
        first.encoded.folder.name
    ]
    with monkeypatch.context() as patched:
        patched.delattr(preparation, "_prepare")
        assert texts(loaded(files), "val") == texts(first, "val")
    write_lines(files["val"], [article(number) for number in range(90, 95)])
    os.utime(files["val"], ns=(1, 1))
    assert texts(loaded(files), "val") != texts(first, "val")


def test_a_stopped_preparation_continues(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = loaded({**files, "test": files["val"]})
    written: list[Path] = []
    write_part = preparation.write_part

    def stop(path: Path, *arguments: Any) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        write_part(path, *arguments)
        written.append(path)

    with monkeypatch.context() as patched:
        patched.setattr(preparation, "write_part", stop)
        with pytest.raises(KeyboardInterrupt):
            loaded(files)
    assert all(path.exists() for path in written)
    again: list[str] = []
    monkeypatch.setattr(
        preparation, "write_part", lambda path, *rest: (again.append(path.name), write_part(path, *rest))[1]
    )
    resumed = loaded(files)
    assert again == ["train-000003.npz", "train-000004.npz", "val-000000.npz", "test-000000.npz"]
    assert texts(resumed, "train") == texts(whole, "train")
    assert not written[0].parent.exists()


def test_a_damaged_cache_is_prepared_again(files: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    first = loaded(files)
    expected = [texts(first, split) for split in SPLITS]
    for name in ("corpus.json", "words.npy", "train-words.npy", "val-lengths.npy"):
        path = first.encoded.folder / name
        whole = path.read_bytes()
        for damaged in (whole[:-5], whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:]):  # truncated; a flipped byte
            path.write_bytes(damaged)
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                assert [texts(loaded(files), split) for split in SPLITS] == expected, name
            assert "is damaged" in caplog.text, name
            assert path.read_bytes() == whole, name


def test_shuffled_tokens_are_prepared_again(files: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    first = loaded(files)
    expected = texts(first, "train")
    np.save(first.encoded.folder / "train-words.npy", np.random.default_rng(0).permutation(first.tokens["train"]))
    assert texts(loaded(files), "train") == expected
    assert "is damaged (checksum of train-words.npy) and is prepared again" in caplog.text


def test_a_damaged_part_of_a_stopped_preparation_is_prepared_again(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(preparation, "_word_list", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loaded(files)
    (part,) = files["train"].parent.glob(".cache/*.parts/train-000002.npz")
    content = part.read_bytes()
    part.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    corpus = loaded(files)
    assert f"{part}: is damaged" in caplog.text
    assert texts(corpus, "train") == texts(loaded({**files, "test": files["val"]}), "train")


def test_a_split_that_cannot_be_read_is_named(files: dict[str, Path]) -> None:
    files["val"].unlink()
    OTHERS["unreadable"](files["val"])
    with pytest.raises(OptionError, match=rf"^val={files['val']}: cannot be read \("):
        loaded(files)


def test_concurrent_preparations_give_the_same_corpus(files: dict[str, Path]) -> None:
    alone = loaded(files)
    names = ("train-words.npy", "words.npy", "train-lengths.npy")
    expected = {name: (alone.encoded.folder / name).read_bytes() for name in names}
    for path in files.values():
        os.utime(path, ns=(2, 2))
    made: list[SummaryCorpus] = []
    together = threading.Barrier(2)

    def prepare() -> None:
        together.wait(timeout=60)
        made.append(loaded(files))

    threads = [threading.Thread(target=prepare) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 2
    assert made[0].encoded.folder == made[1].encoded.folder != alone.encoded.folder
    assert {name: (made[0].encoded.folder / name).read_bytes() for name in expected} == expected


def test_skipped_examples_are_reported(files: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    rows = [article(number) for number in range(20)]
    write_lines(files["train"], [rows[0], {**rows[1], "article": ""}, b"{", *rows[2:], {**rows[1], "article": ""}])
    with caplog.at_level(logging.INFO):
        corpus = loaded(files)
    assert corpus.encoded.reports["train"] == Report(
        19, {"with an empty article": (2, "train.jsonl:2"), "line that is not JSON": (1, "train.jsonl:3")}
    )
    assert (
        "articles, train: 19 pairs; left out: 2 with an empty article (first train.jsonl:2), 1 line that" in caplog.text
    )
    assert len(texts(corpus, "train")) == 19


def test_a_split_without_pairs_is_an_error(files: dict[str, Path]) -> None:
    write_lines(files["val"], [{"article": "a"}, b"{"])
    with pytest.raises(
        OptionError,
        match=r"val\.jsonl: contains no pair of an article and a summary for the split val \(0 pairs; left out: 1 with",
    ):
        loaded(files)
    write_lines(files["val"], [])
    with pytest.raises(
        OptionError, match=r"val\.jsonl: contains no pair of an article and a summary for the split val \(0 pairs\)$"
    ):
        loaded(files)


def test_a_wrong_size_is_refused(files: dict[str, Path]) -> None:
    with pytest.raises(OptionError, match=r"^size=4: must be an integer ≥ 5$"):
        loaded(files, size=4)


def test_a_protected_data_folder_falls_back_to_the_user_cache(files: dict[str, Path], user_cache: Path) -> None:
    files["train"].parent.chmod(0o555)
    try:
        assert loaded(files).encoded.folder.parent == user_cache
    finally:
        files["train"].parent.chmod(0o755)


def test_modes_are_different_corpora(files: dict[str, Path]) -> None:
    titles = loaded(files, mode="s2t")
    assert texts(titles, "val")[0][1] == ["name40", "there", "</s>"]
    shuffled, plain = loaded(files, mode="sh2s"), loaded(files)
    assert len({corpus.encoded.folder for corpus in (titles, shuffled, plain)}) == 3
    assert [sorted(article) for article, _ in texts(shuffled, "train")] == [
        sorted(article) for article, _ in texts(plain, "train")
    ]


def test_cnn_dailymail_in_every_form_is_the_same_corpus(tmp_path: Path, files: dict[str, Path]) -> None:
    pairs = {split: list(read_pairs(path)) for split, path in files.items()}
    corpora = []
    for form in ("lines", "chunks", "stories"):
        folder = tmp_path / form / "cnn_dailymail"
        for split, path in files.items():
            if form == "lines":
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{'validation' if split == 'val' else split}.jsonl").write_bytes(path.read_bytes())
                continue
            if form == "stories":
                for number, line in enumerate(path.read_text().splitlines()):
                    row = json.loads(line)
                    marked = "".join(f"\n\n@highlight\n\n{sentence}" for sentence in row["highlights"])
                    write_story(folder / "cnn" / "stories", f"http://{split}/{number}", row["article"] + marked)
                addresses = folder / "url_lists" / f"all_{split}.txt"
                addresses.parent.mkdir(exist_ok=True)
                addresses.write_text("".join(f"http://{split}/{number}\n" for number in range(len(pairs[split]))))
                continue
            examples = [
                example(
                    article=" ".join(pair.article),
                    abstract=" ".join(f"<s> {' '.join(sentence)} </s>" for sentence in pair.sentences),
                )
                for pair in pairs[split]
            ]
            for start in range(0, len(examples), 10):
                name = f"{split}_{start // 10:03}.bin"
                write_chunk(folder / "finished_files" / "chunked" / name, examples[start : start + 10])
        corpora.append(load_cnn_dailymail("full", tmp_path / form, processes=1))
    first, second, third = (texts(corpus, "train") for corpus in corpora)
    assert first == second
    # a story's lines end with periods
    assert [[word for word in article if word != "."] for article, _ in third] == [
        [word for word in article if word != "."] for article, _ in first
    ]
    assert [summary for _, summary in third] == [summary for _, summary in first]


def test_missing_files_are_refused_with_the_supported_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cnn_dailymail has no train split: put train\.jsonl or train\.csv .* part="):
        load_cnn_dailymail("full", tmp_path)
    with pytest.raises(OptionError, match=r"^part=half: must be one of full, excerpt$"):
        load_cnn_dailymail("half", tmp_path)


@pytest.mark.slow
def test_the_excerpt_of_cnn_dailymail(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (DATA / "cnn_dailymail" / "validation_first1000.jsonl").is_file():
        pytest.skip(f"no cnn_dailymail/validation_first1000.jsonl in {DATA} (set DATA_DIR)")
    monkeypatch.setattr("gyral.data.preparation.BLOCK", 1000)
    corpus = load_cnn_dailymail("excerpt", DATA, processes=1)
    assert [corpus.encoded.reports[split].kept for split in SPLITS] == [900, 100, 500]
    assert corpus.vocabulary.symbols[:8] == ("<pad>", "<unk>", "<s>", "</s>", "the", ",", ".", "to")
    assert 31_000 < len(corpus.vocabulary) < 31_500
    assert 39_000 < len(corpus.words) < 40_000
    article, summary = texts(corpus, "test")[0]
    assert " ".join(article[:8]) == "-lrb- cnn -rrb- the palestinian authority officially became"
    assert summary.count("</s>") == 2


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gyral.data.preparation.BLOCK", 10)
    val = write_lines(tmp_path / "val.jsonl", [article(0)])

    def peak(count: int) -> int:
        # every article has new words, as every one of a real corpus
        path = write_lines(tmp_path / f"{count}.jsonl", [article(number, 120) for number in range(count)])
        gc.collect()
        tracemalloc.start()
        try:
            load(tmp_path, train=path, val=val, test=val, processes=1)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's own; numpy leaves cycles for each header that it reads
    try:
        peak(10)  # imports and caches
        assert peak(160) < 1.4 * peak(20)
    finally:
        gc.set_threshold(*thresholds)


@pytest.mark.slow
def test_twenty_thousand_articles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gyral.data.preparation.BLOCK", 1000)
    path = write_lines(tmp_path / "train.jsonl", [article(number, 700) for number in range(20_000)])
    val = write_lines(tmp_path / "val.jsonl", [article(0)])
    corpus = load(tmp_path, train=path, val=val, test=val)
    assert corpus.encoded.reports["train"].kept == 20_000
    assert len(corpus.words) > 40_000
