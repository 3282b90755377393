"""Words in the style of the Penn Treebank: rules, tokenized text, See et al.'s own tokens, sentences."""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyral.data.text.penn import has_control_characters, split_sentences, tokenize

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[3] / "data")) / "cnn_dailymail"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It didn't rain. We can't, they're", "it did n't rain . we ca n't , they 're"),
        ("DON’T say I'VE", "do n't say i 've"),
        ("I cannot; gonna", "i can not ; gon na"),
        ('(CNN)He said: "Yes!" and left', "-lrb- cnn -rrb- he said : `` yes ! '' and left"),
        ("the 'fog' of “war”", "the ` fog ' of `` war ''"),
        ("players' wives in the '90s", "players ' wives in the '90s"),
        ("[a] {b}", "-lsb- a -rsb- -lcb- b -rcb-"),
        ("Mr. Smith of the U.S. met Dr. J. Who", "mr. smith of the u.s. met dr. j. who"),
        ("U.S.-led forces, AT&T", "u.s.-led forces , at&t"),
        ("No. 1 said no. It", "no. 1 said no . it"),
        ("at 10:30 a.m. on 1/2", "at 10:30 a.m. on 1/2"),
        ("$1,200.50 or £3m, 5%", "$ 1,200.50 or # 3m , 5 %"),
        ("a 22-year-old won 4-3", "a 22-year-old won 4-3"),
        ("wait... what — no–yes…", "wait ... what -- no -- yes ..."),
        ("write to a.b@mail.co.uk or @some_one #Now", "write to a.b@mail.co.uk or @some_one #now"),
        ("see www.cnn.com/world, or CNN.com.", "see www.cnn.com/world , or cnn.com ."),
        ("O'Malley's café", "o'malley 's café"),
        ("one\x00two\u200bthree co\u00adoperate", "one two three cooperate"),
        ("\ud800", ""),
        ("", ""),
        (" \n\t ", ""),
    ],
)
def test_words_of_a_text(text: str, words: str) -> None:
    assert tokenize(text) == words.split()
    assert tokenize(words) == words.split()


@settings(max_examples=300, derandomize=True)
@given(st.text(alphabet=" .'\"-,;:()ab1AnsSt’“”‘/$£&!?\n", max_size=14))
def test_tokenizing_twice_changes_nothing(text: str) -> None:
    words = tokenize(text)
    assert tokenize(" ".join(words)) == words


def test_tokenizing_takes_time_linear_in_the_length() -> None:
    for text in ("a." * 50_000, "'" * 100_000, "a-" * 50_000, '"' * 100_000, "1," * 50_000, "www." * 25_000):
        assert tokenize(text)


def test_highlights_are_tokenized_as_by_see_et_al() -> None:
    references = DATA / "test_refs_and_outputs" / "srush_temp" / "test.txt.tgt.tagged"
    articles = DATA / "test_first500.jsonl"
    if not references.is_file() or not articles.is_file():
        pytest.skip(f"no {references} (set DATA_DIR)")

    def key(sentences: list[str]) -> str:
        return re.sub(r"[^a-z0-9]", "", "".join(sentences).lower())[:60]

    tagged = (re.findall("<t> (.*?) </t>", line) for line in references.read_text().splitlines())
    theirs = {key(sentences): sentences for sentences in tagged}
    ours = [json.loads(line)["highlights"] for line in articles.read_text().splitlines()]
    pairs = [
        (tokenize(raw), sentence.split())
        for sentences in ours
        for raw, sentence in zip(sentences, theirs.get(key(sentences), []), strict=False)
    ]
    assert len(pairs) > 1200
    assert sum(found != expected for found, expected in pairs) <= 8  # 7 of 1,255 sentences


def test_control_characters() -> None:
    assert has_control_characters("a\x00b")
    assert has_control_characters("a\u200bb")
    assert not has_control_characters("a b\n\tc é\u00a0")


def test_sentences_of_words() -> None:
    text = "he said `` no . '' it rained ! -lrb- was it so ? -rrb- no end"
    assert [" ".join(sentence) for sentence in split_sentences(text.split())] == [
        "he said `` no . ''",
        "it rained !",
        "-lrb- was it so ? -rrb-",
        "no end",
    ]
    assert split_sentences([]) == ()
    assert split_sentences(["''", "a"]) == (["''", "a"],)
