"""Sentences in the form of the text that a language model was trained on."""

import re
from typing import NamedTuple

from gyral.data.text.corpora import Corpus
from gyral.data.text.penn import ENDS, tokenize
from gyral.data.vocabulary import END_OF_LINE, UNKNOWN, Symbols

SAMPLE = 10**6  # symbols of the training text that determine its form
MARKS = ".?!"
PLAIN = re.compile(r"(?!.*(?:cannot|gonna|wanna|gotta))[a-z ]+")
NUMBER = re.compile(r"[\d.,:/-]*\d[\d.,:/-]*")


class EncodedSentence(NamedTuple):
    """A sentence as a model reads it.

    Attributes:
        tokens: a line end or a space, the sentence, and its end.
        words: the words.
        unknown: the words that are not in the vocabulary.
    """

    tokens: tuple[int, ...]
    words: tuple[str, ...]
    unknown: frozenset[str]


class SentenceEncoder:
    """Converts sentences to the form of a corpus.

    Words are tokens of the Penn Treebank (`gyral.data.text.penn.tokenize`) if symbols are words, or if the training
    text has the word "n't". Otherwise the text is unchanged. Sentences are in lower case if the corpus has no capitals
    except for N and `<unk>`. Marks and characters that the corpus does not have are left out, and unknown numbers
    become N if the corpus uses N for numbers.

    A sentence follows a line end, or a space in a text without lines. It ends with a period, which is added if it is
    missing, or, if the corpus has no periods, with a line end or a space.

    Args:
        corpus: the corpus of the model.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.vocabulary = corpus.vocabulary
        self.of_words = corpus.level == "word"
        symbols = self.vocabulary.symbols
        self.lower = not any(symbol != symbol.lower() for symbol in symbols if symbol not in ("N", UNKNOWN))
        if self.of_words:
            self.sample_words = set(symbols)
        else:
            self.sample_words = set(self.vocabulary.decode(corpus.splits["train"][:SAMPLE].tolist()).split())
        self.is_penn = self.of_words or "n't" in self.sample_words
        line_end = END_OF_LINE if self.of_words else "\n"
        self.boundary = line_end if line_end in self.vocabulary.index else " "

    def encode(self, sentence: str) -> EncodedSentence:
        """Return a sentence as the model reads it.

        Raises:
            UserError: neither a word nor `<unk>` is in the vocabulary, or neither a line end nor a space is.
        """
        text = sentence.lower() if self.lower else sentence
        text = text if text.endswith(ENDS) else f"{text}."
        words = self._penn_words(text) if self.is_penn else text.split()
        if self.of_words:
            unknown = frozenset(word for word in words if word not in self.vocabulary.index)
        else:
            unknown = frozenset(word for word in words if not all(map(self._is_known, word.rstrip(MARKS))))
            words = [known for word in words if (known := "".join(filter(self._is_known, word)))]
        ended = bool(words) and words[-1].endswith(ENDS)
        end = [] if ended else [self.boundary]
        symbols: Symbols = [self.boundary, *words, *end]
        if not self.of_words:  # no space beside a boundary
            symbols = "".join((self.boundary, " ".join(words), *end))
        return EncodedSentence(tuple(self.vocabulary.encode(symbols, "sentence").tolist()), tuple(words), unknown)

    def _penn_words(self, text: str) -> list[str]:
        body, end = text[:-1].rstrip(), text[-1]
        # the tokenizer would not change plain words, which most sentences are
        words = [*body.split(), end] if PLAIN.fullmatch(body) else tokenize(text, self.lower)
        return [self._number(word) for word in words if word in self.sample_words or any(map(str.isalnum, word))]

    def _number(self, word: str) -> str:
        is_number = NUMBER.fullmatch(word) and word not in self.sample_words and "N" in self.sample_words
        return "N" if is_number else word

    def _is_known(self, character: str) -> bool:
        of_bytes = self.vocabulary.level == "byte"
        symbols = map(chr, character.encode()) if of_bytes else [character]
        return all(symbol in self.vocabulary.index for symbol in symbols)
