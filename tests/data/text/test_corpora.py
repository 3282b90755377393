"""Corpora: sizes and splits, missing and invalid files, options."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS
from gyral.data.catalogue import CATALOGUE
from gyral.data.text.corpora import TEXT_CORPORA, load, load_file
from tests.data.text.conftest import LETTERS, lengths, write

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[3] / "data"))


@pytest.fixture
def ptb(data: Path) -> Path:
    """A data folder with the real Penn Treebank and an empty cache."""
    if not (DATA / "ptb" / "ptb.char.train.txt").is_file():
        pytest.skip(f"no ptb/ptb.char.train.txt in {DATA} (set DATA_DIR)")
    (data / "ptb").symlink_to((DATA / "ptb").resolve())
    return data


def test_penn_treebank_by_characters(ptb: Path) -> None:
    corpus = load("ptb_char", ptb)
    assert lengths(corpus) == [5_017_482, 393_042, 442_423]
    assert (corpus.name, corpus.level, len(corpus.vocabulary)) == ("ptb_char", "char", 50)
    assert {" ", "\n", "<", "N"} < set(corpus.vocabulary.symbols)
    assert "_" not in corpus.vocabulary.symbols
    assert all(tokens.dtype == np.uint8 and isinstance(tokens, np.memmap) for tokens in corpus.splits.values())
    start = corpus.vocabulary.decode(corpus.splits["test"][:56])
    assert start == "no it was n't black monday\nbut while the new york stock "


def test_penn_treebank_by_words(ptb: Path) -> None:
    corpus = load("ptb_word", ptb)
    assert lengths(corpus) == [929_589, 73_760, 82_430]
    assert (corpus.level, len(corpus.vocabulary)) == ("word", 10_000)
    assert corpus.vocabulary.symbols[:5] == ("the", "<unk>", "<eos>", "N", "of")
    assert all(tokens.dtype == np.uint16 for tokens in corpus.splits.values())
    assert corpus.vocabulary.decode(corpus.splits["test"][:10]) == "no it was n't black monday\nbut while the"


def test_words_and_characters_of_the_penn_treebank_are_the_same_text(ptb: Path) -> None:
    characters, words = load("ptb_char", ptb), load("ptb_word", ptb)
    for split in ("val", "test"):
        text = characters.vocabulary.decode(characters.splits[split])
        assert words.vocabulary.decode(words.splits[split]) == text


def test_a_single_file_is_split_90_5_5(letters: Path, data: Path) -> None:
    corpus = load("letters", data)
    assert lengths(corpus) == [396, 22, 22]
    assert "".join(corpus.vocabulary.decode(corpus.splits[split]) for split in SPLITS) == LETTERS.decode()
    assert len(corpus.vocabulary) == 27


@pytest.mark.parametrize(("name", "size", "unit"), [("text8", 27, "char"), ("enwik8", 205, "byte")])
def test_mahoneys_corpora(name: str, size: int, unit: str, data: Path) -> None:
    if not (DATA / name / name).is_file():
        pytest.skip(f"no {name}/{name} in {DATA} (set DATA_DIR)")
    (data / name).symlink_to((DATA / name).resolve())
    corpus = load(name, data)
    assert lengths(corpus) == [90_000_000, 5_000_000, 5_000_000]
    assert (corpus.level, len(corpus.vocabulary)) == (unit, size)


@pytest.mark.parametrize("name", ["ptb_char", "ptb_word", "text8", "enwik8"])
def test_a_missing_file_is_named_with_its_place_and_origin(name: str, data: Path) -> None:
    published = TEXT_CORPORA[name]
    with pytest.raises(OptionError) as caught:
        load(name, data)
    message = str(caught.value)
    path = data / published.folder / published.files[0].name
    assert message.startswith(f"name={name}: {path} does not exist; `gyral fetch {published.folder}` downloads it ")
    assert CATALOGUE[published.folder].urls[0] in message
    assert CATALOGUE[published.folder].license in message
    assert "\n" not in message


def test_a_file_of_another_size_or_checksum_is_refused(letters: Path, data: Path) -> None:
    write(letters, LETTERS + b" ")
    with pytest.raises(OptionError, match=r"^name=letters: .*letters\.txt: has 441 bytes, the published file 440: "):
        load("letters", data)
    write(letters, b"T" + LETTERS[1:])
    with pytest.raises(OptionError, match=r"^name=letters: .*letters\.txt: has another sha256 "):
        load("letters", data)


def test_an_unknown_corpus_is_refused(data: Path) -> None:
    with pytest.raises(OptionError, match=r"^name=ptb: must be one of ptb_char, ptb_word, text8, enwik8$"):
        load("ptb", data)


def test_a_file_is_cut_from_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "abcdefghij" * 10)
    corpus = load_file(path, tmp_path, val_fraction=0.1, test_fraction=0.25)
    assert lengths(corpus) == [65, 10, 25]
    assert corpus.vocabulary.decode(corpus.splits["val"]) == "fghijabcde"
    assert corpus.vocabulary.decode(corpus.splits["test"]) == "fghij" + "abcdefghij" * 2
    assert corpus.name == "text.txt"


def test_a_packed_file_is_the_same_text(tmp_path: Path) -> None:
    text = "a b c d e f g h i j " * 20
    (tmp_path / "text.txt").write_text(text)
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(text.encode()))
    plain, packed = (load_file(tmp_path / name, tmp_path) for name in ("text.txt", "text.txt.gz"))
    assert packed.vocabulary.symbols == plain.vocabulary.symbols
    assert all((packed.splits[name] == plain.splits[name]).all() for name in plain.splits)


def test_a_file_may_be_read_by_words_and_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "zwei größere Wörter\n" * 10)
    words = load_file(path, tmp_path, level="word", val_fraction=0.1, test_fraction=0.1)
    assert lengths(words) == [32, 4, 4]
    assert words.vocabulary.symbols == ("<eos>", "Wörter", "größere", "zwei", "<unk>")
    assert words.vocabulary.decode(words.splits["test"]) == "zwei größere Wörter\n"
    by_bytes = load_file(path, tmp_path, level="byte", val_fraction=0.1, test_fraction=0.1)
    assert lengths(by_bytes) == [184, 23, 23]
    assert by_bytes.vocabulary.decode(by_bytes.splits["test"]) == "zwei größere Wörter\n"


def test_line_ends_are_left_as_they_are(tmp_path: Path) -> None:
    corpus = load_file(write(tmp_path / "text.txt", "ab\r\n" * 20), tmp_path)
    assert corpus.vocabulary.symbols == ("\n", "\r", "a", "b")


def test_a_byte_order_mark_is_not_a_symbol(tmp_path: Path) -> None:
    text = "the quick brown fox " * 10
    plain = load_file(write(tmp_path / "text.txt", text), tmp_path)
    marked = load_file(write(tmp_path / "text.txt", "\ufeff" + text), tmp_path)
    assert marked.vocabulary.symbols == plain.vocabulary.symbols
    assert marked.splits["train"].tolist() == plain.splits["train"].tolist()
    words = load_file(tmp_path / "text.txt", tmp_path, level="word")
    assert words.vocabulary.symbols == ("brown", "fox", "quick", "the", "<unk>")
    assert lengths(load_file(tmp_path / "text.txt", tmp_path, level="byte", minimum_count=2)) == [183, 10, 10]
    write(tmp_path / "text.txt", b"\xef\xbb\xbfabc\xff")
    with pytest.raises(OptionError, match=r"is not UTF-8: byte 0xff at offset 6; "):
        load_file(tmp_path / "text.txt", tmp_path)


def test_symbols_that_training_lacks_are_refused_or_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "ab" * 50 + "abéab")
    with pytest.raises(OptionError, match=rf"^path={path}: test split: 'é' \(U\+00E9\) at position 2 does not occur"):
        load_file(path, tmp_path)
    corpus = load_file(path, tmp_path, minimum_count=2)
    assert corpus.vocabulary.symbols == ("a", "b", "<unk>")
    assert corpus.splits["test"].tolist() == [0, 1, 2, 0, 1]
    words = write(tmp_path / "words.txt", "once " + "a b " * 30 + "new a")
    assert load_file(words, tmp_path, level="word").splits["test"].tolist() == [1, 2, 0]  # b <unk> a


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", {}, "is empty"),
        (b"abc\xff" * 20, {}, r"is not UTF-8: byte 0xff at offset 3; .* level=byte"),
        (b"ab\xc3", {"level": "word"}, r"is not UTF-8: byte 0xc3 at offset 2; "),
        (b"ab" * 10, {}, "its val split has 1 chars, and must have at least 2"),
        (b"ab " * 10, {"level": "word", "val_fraction": 0.4, "test_fraction": 0.01}, "its test split has 0 words"),
        (None, {}, r"cannot be read \(No such file or directory\)"),
    ],
)
def test_bad_files_are_named_in_one_line(
    tmp_path: Path, content: bytes | None, options: dict[str, str], message: str
) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        write(path, content)
    with pytest.raises(OptionError, match=rf"^path={path}: {message}") as caught:
        load_file(path, tmp_path, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert not (tmp_path / ".cache").exists()


def test_a_folder_is_refused_as_a_text_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot be read \(Is a directory\)$"):
        load_file(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "letter"}, "level=letter: must be one of char, word, byte"),
        ({"val_fraction": 0}, "val_fraction=0: "),
        ({"test_fraction": -0.1}, "test_fraction=-0.1: "),
        (
            {"val_fraction": 0.5, "test_fraction": 0.5},
            "test_fraction=0.5: must be less than 1 in sum with val_fraction, 0.5",
        ),
        ({"minimum_count": 0}, "minimum_count=0: "),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}"):
        load_file(None, tmp_path, **options)  # type: ignore[arg-type]
