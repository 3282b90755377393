"""Vocabularies: a fixed order, encoding and back, symbols that training does not have."""

import itertools
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyral.core.errors import OptionError, UserError
from gyral.data import vocabulary as module
from gyral.data.vocabulary import END_OF_LINE, UNKNOWN, Decoder, Vocabulary, split_words


def test_characters_are_in_the_order_of_their_code_points() -> None:
    vocabulary = Vocabulary.of("bean é😀 a\n", "char")
    assert vocabulary.symbols == ("\n", " ", "a", "b", "e", "n", "é", "😀")
    assert vocabulary.encode("aé😀b").tolist() == [2, 6, 7, 3]
    assert vocabulary.decode([3, 4, 2, 5, 7]) == "bean😀"


def test_words_are_in_the_order_of_their_counts_and_then_of_their_letters() -> None:
    vocabulary = Vocabulary.of(split_words("b a c\nc b c\n\n"), "word")
    assert vocabulary.symbols == (END_OF_LINE, "c", "b", "a")
    assert vocabulary.encode("a b\nc\n").tolist() == [3, 2, 0, 1, 0]


def test_bytes_are_the_utf_8_encoding() -> None:
    vocabulary = Vocabulary.of("aé€".encode(), "byte")
    assert [ord(symbol) for symbol in vocabulary.symbols] == [0x61, 0x82, 0xA9, 0xAC, 0xC3, 0xE2]
    assert vocabulary.encode("€a").tolist() == vocabulary.encode("€a".encode()).tolist() == [5, 1, 3, 0]
    assert vocabulary.decode([5, 1, 3, 0]) == "€a"
    assert vocabulary.decode([5, 0]) == "�a"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_characters_and_bytes_decode_to_what_was_encoded(text: str) -> None:
    for symbols, level in ((text, "char"), (text.encode(), "byte")):
        vocabulary = Vocabulary.of(symbols, level)
        encoded = vocabulary.encode(text)
        assert len(encoded) == len(symbols)
        assert vocabulary.decode(encoded) == text


@given(st.lists(st.sampled_from(["a", "b", "cd", END_OF_LINE, UNKNOWN])))
def test_words_decode_to_text_that_encodes_to_the_same(words: list[str]) -> None:
    vocabulary = Vocabulary("word", ["a", "b", "cd", END_OF_LINE, UNKNOWN])
    encoded = vocabulary.encode(words)
    text = vocabulary.decode(encoded)
    assert vocabulary.encode(text).tolist() == encoded.tolist()
    assert text == text.strip(" ")
    assert " \n" not in text


def test_the_end_of_a_line_is_a_word() -> None:
    assert split_words(" a  b \n\nc") == ["a", "b", END_OF_LINE, END_OF_LINE, "c"]
    vocabulary = Vocabulary.of(split_words("a b\n\nc\n"), "word")
    assert vocabulary.decode(vocabulary.encode("a b\n\nc\n")) == "a b\n\nc\n"


@pytest.mark.parametrize(("size", "dtype"), [(1, np.uint8), (256, np.uint8), (257, np.uint16), (2**16 + 1, np.uint32)])
def test_indices_have_the_smallest_sufficient_type(size: int, dtype: type) -> None:
    words = [str(index) for index in range(size)]
    vocabulary = Vocabulary("word", words)
    encoded = vocabulary.encode([words[-1]])
    assert vocabulary.dtype == encoded.dtype == dtype
    assert encoded.tolist() == [size - 1]


def test_symbols_outside_the_vocabulary_are_found_among_256_bytes_and_300_characters() -> None:
    every_byte = bytes(range(256))
    assert Vocabulary.of(every_byte, "byte").encode(every_byte).tolist() == list(range(256))
    characters = "".join(map(chr, range(0x400, 0x400 + 256)))
    vocabulary = Vocabulary.of(characters, "char")
    assert vocabulary.encode(characters).tolist() == list(range(256))
    for unseen in ("a", "é", "\u0500", "😀"):
        with pytest.raises(UserError):
            vocabulary.encode(unseen)


@pytest.mark.parametrize("block", [3, 4, 100])
def test_block_boundaries_do_not_change_the_encoding(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    text = "abcdéfabc😀a"  # blocks in ASCII and others
    expected = Vocabulary.of(text, "char")
    monkeypatch.setattr(module, "BLOCK", block)
    vocabulary = Vocabulary.of(text, "char")
    assert vocabulary.symbols == expected.symbols
    assert vocabulary.decode(vocabulary.encode(text)) == text
    with pytest.raises(UserError, match=r"'x' \(U\+0078\) at position 9 "):
        vocabulary.encode("abcdefabcx".replace("e", "é"))


@pytest.mark.parametrize(
    ("level", "text", "unseen", "named"),
    [
        ("char", "abc", "ab€c", r"'€' \(U\+20AC\) at position 2"),
        ("byte", b"abc", b"ab\xffc", "byte 0xff at position 2"),
        ("word", ["a", "b"], ["a", "b", "new", "old"], "'new' at position 2"),
    ],
)
def test_an_unseen_symbol_is_named_with_its_place(
    level: str, text: module.Symbols, unseen: module.Symbols, named: str
) -> None:
    vocabulary = Vocabulary.of(text, level)
    with pytest.raises(
        UserError, match=rf"^ptb, val split: {named} does not occur .* task\.corpus\.minimum_count=2,"
    ) as caught:
        vocabulary.encode(unseen, "ptb, val split")
    assert "\n" not in str(caught.value)


def test_unseen_symbols_become_unk_if_the_vocabulary_has_it() -> None:
    vocabulary = Vocabulary.of(["a", UNKNOWN, "a"], "word")
    assert vocabulary.symbols == ("a", UNKNOWN)
    assert vocabulary.encode("a new a").tolist() == [0, 1, 0]


def test_rare_symbols_become_unk() -> None:
    words = Vocabulary.of(split_words("a a a b b c d e"), "word", minimum_count=2)
    assert words.symbols == (UNKNOWN, "a", "b")  # three rare ones, as many as of a
    assert words.encode("a c new b").tolist() == [1, 0, 0, 2]
    characters = Vocabulary.of("aabbc", "char", minimum_count=2)
    assert characters.symbols == ("a", "b", UNKNOWN)
    assert characters.encode("abcz<").tolist() == [0, 1, 2, 2, 2]
    assert characters.decode([0, 2]) == "a<unk>"
    assert Vocabulary.of(b"aab", "byte", minimum_count=2).decode([0, 1]) == "a<unk>"


def test_an_unk_in_the_text_is_kept_even_if_it_is_rare() -> None:
    assert Vocabulary.of(["a", "a", UNKNOWN], "word", minimum_count=2).symbols == ("a", UNKNOWN)


@pytest.mark.parametrize("level", module.LEVELS)
@pytest.mark.parametrize("minimum_count", [1, 2])
def test_json_restores_the_same_vocabulary(level: str, minimum_count: int) -> None:
    text = "to be é or not to be é\n"
    symbols = {"char": text, "word": split_words(text), "byte": text.encode()}[level]
    vocabulary = Vocabulary.of(symbols, level, minimum_count)
    again = Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert (again.level, again.symbols) == (level, vocabulary.symbols)
    assert again.encode(text).tolist() == vocabulary.encode(text).tolist()


def test_wrong_options_are_refused() -> None:
    with pytest.raises(OptionError, match=r"^level=letter: must be one of char, word, byte$"):
        Vocabulary("letter", ["a"])
    with pytest.raises(OptionError, match=r"^minimum_count=0: "):
        Vocabulary.of("a", "char", minimum_count=0)


@pytest.mark.parametrize("alphabet", ["abcdefghijklmnopqrstuvwxyz ", "аბγdé😀 "])
def test_no_function_is_called_for_each_of_a_million_characters(alphabet: str) -> None:
    text = alphabet * (10**6 // len(alphabet))
    calls = itertools.count()
    sys.setprofile(lambda *_: next(calls) and None)
    vocabulary = Vocabulary.of(text, "char")
    encoded = vocabulary.encode(text)
    sys.setprofile(None)
    assert next(calls) < 10_000
    assert np.array_equal(encoded[-len(alphabet) :], vocabulary.encode(alphabet))


@given(st.binary(max_size=30))
def test_decoding_byte_by_byte_equals_decoding_at_once(content: bytes) -> None:
    decoder = Decoder("byte")
    pieces = [decoder.add(chr(byte)) for byte in content]
    assert "".join(pieces) + decoder.end() == content.decode(errors="replace")


def test_a_character_is_decoded_with_its_last_byte() -> None:
    decoder = Decoder("byte")
    assert [decoder.add(chr(byte)) for byte in "a€".encode()] == ["a", "", "", "€"]
    assert decoder.end() == ""
