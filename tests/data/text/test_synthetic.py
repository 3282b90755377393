"""The synthetic text: reproducible, grammatical, complete vocabulary in training."""

import functools
import hashlib
from pathlib import Path

from gyral.data.text import synthetic
from gyral.data.text.corpora import load_file
from gyral.data.text.synthetic import synthetic_text
from gyral.data.vocabulary import split_words
from tests.data.text.conftest import lengths

SHA256 = "2dd0e2d0e1783708ecdf6e477a9621ed55953975735fe9cbf696ae85e1554f7f"


def test_synthetic_text_depends_only_on_its_seed() -> None:
    text = synthetic_text()
    assert 300_000 <= len(text) < 301_000
    assert text.isascii()
    assert hashlib.sha256(text.encode()).hexdigest() == SHA256
    assert synthetic_text(1000, seed=2) != synthetic_text(1000) == text[: len(synthetic_text(1000))]


def test_synthetic_text_has_all_its_words_in_training_at_both_levels(tmp_path: Path) -> None:
    characters = load_file(None, tmp_path)
    assert (characters.name, len(characters.vocabulary)) == ("own_text", 34)
    assert sum(lengths(characters)) == len(synthetic_text())
    words = load_file(None, tmp_path, level="word", minimum_count=1)
    assert len(words.vocabulary) == 76
    assert sum(lengths(words)) == len(split_words(synthetic_text()))


class Grammar:
    """The claims of synthetic_text, tested word by word: a sentence is derived, or it is not."""

    def __init__(self, sentence: str) -> None:
        self.words = sentence.split()
        self.noun_phrase = functools.cache(self._noun_phrase)  # type: ignore[method-assign]
        self.clause = functools.cache(self._clause)  # type: ignore[method-assign]
        self.aside = functools.cache(self._aside)  # type: ignore[method-assign]

    def after(self, start: int, words: list[str]) -> set[int]:
        """Where one of these, of one or more words, ends that begins at `start`."""
        return {
            start + len(word.split()) for word in words if self.words[start : start + len(word.split())] == word.split()
        }

    def _noun_phrase(self, number: str, start: int) -> set[int]:
        nouns = {
            end
            for the in self.after(start, ["the"])
            for begin in {the} | self.after(the, synthetic.ADJECTIVES)
            for end in self.after(begin, synthetic.NOUNS[number])
        }
        ends = set(nouns)
        for noun in nouns:
            for other in synthetic.NOUNS:
                for place in self.after(noun, synthetic.PLACES):
                    ends |= self.noun_phrase(other, place)
                for that in self.after(noun, ["that"]):
                    for end in self.noun_phrase(other, that):
                        ends |= self.after(end, synthetic.VERBS[other])
                    for verb in self.after(that, synthetic.VERBS[number]):
                        ends |= self.noun_phrase(other, verb)
        return ends

    def _aside(self, start: int) -> set[int]:
        ends = set()
        for opening, closing in synthetic.BRACKETS:
            for begin in self.after(start, [opening]):
                for inner in self.clause(begin) | self.after(begin, synthetic.ADJECTIVES):
                    for end in {inner} | self.aside(inner):
                        ends |= self.after(end, [closing])
        return ends

    def _clause(self, start: int) -> set[int]:
        ends = set()
        for pronoun, names in synthetic.NAMES.items():
            for name in self.after(start, names):
                for subject in {name} | self.aside(name):
                    for verb in self.after(subject, synthetic.VERBS["singular"]):
                        ends |= self.after(verb, [pronoun])
                    for verb in self.after(subject, synthetic.SPEECH):
                        for opening in self.after(verb, ['"']):
                            for quoted in self.clause(opening):
                                ends |= self.after(quoted, ['"'])
        for number in synthetic.NOUNS:
            for phrase in self.noun_phrase(number, start):
                for subject in {phrase} | self.aside(phrase):
                    ends |= self.after(subject, synthetic.RESTING[number])
                    for verb in self.after(subject, synthetic.VERBS[number]):
                        for other in synthetic.NOUNS:
                            ends |= self.noun_phrase(other, verb)
        return ends

    def holds(self) -> bool:
        return len(self.words) - 1 in self.clause(0) and self.words[-1] == "."


def test_synthetic_text_agrees_in_number_and_gender_and_closes_what_it_opens() -> None:
    sentences = synthetic_text().splitlines()[:1500]
    assert all(Grammar(sentence).holds() for sentence in sentences)
    wrong = [
        "the dog that the cats hear sleep .",
        "the dogs near the river sleeps .",
        "anna ( old ) sees himself .",
        "the dog ( small [ old ) ] sleeps .",
        'paul says " the dog sleeps .',
    ]
    assert not any(Grammar(sentence).holds() for sentence in wrong)
    depths = [deepest(sentence) for sentence in sentences]
    assert max(depths) == 5
    assert sum(depth > 1 for depth in depths) > 50
    assert max(sentence.count(" that ") for sentence in sentences) >= 3


def deepest(sentence: str) -> int:
    depth = most = 0
    for word in sentence.split():
        depth += (word in "([{") - (word in ")]}")
        most = max(most, depth)
    return most
