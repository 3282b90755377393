"""Recognition of formal languages: read a word, then say whether it is in the language, with 1 or 0.

An example of task.language=dyck with two kinds of brackets and at most three open ones; ^ begins the word, and ? asks:

    input       ^ ( [ ] ( ) ) [ ] ?
    target                          1

Words of the other languages:

    even_pairs                  0 1 1 0              first and last bit are equal
    repeat_01                   0 1 0 1
    parity                      0 1 1 1              odd number of ones
    first                       1 0 0 1              the first bit is 1
    cycle_navigation            > > < = 1            1 is the place on a cycle of five
    modular_arithmetic_simple   1 + 2 * 3 = 4        modulo 5, computed from left to right
    majority                    0 1 1 0 1            more ones than zeros
    stack_manipulation          0 1 + 1 - - # 0      + pushes the next bit, - pops; after # the stack, its top first
    marked_reversal             0 1 1 # 1 1 0
    unmarked_reversal           0 1 1 1 1 0
    marked_copy                 0 1 1 # 0 1 1
    missing_duplicate           0 1 1 0 _ 1          _ stands for a 1
    odds_first                  0 1 1 0 # 0 1 1 0    first, third, …, then second, fourth, … bit
    binary_addition             0 1 + 1 1 = 1 0 1    least significant bit first: 2 + 3 = 5
    binary_multiplication       0 1 * 1 1 = 0 1 1    2 · 3 = 6
    compute_sqrt                1 0 1 = 0 1          √5 = 2.2…
    bucket_sort                 3 1 5 1 # 1 1 3 5
"""

import random
from typing import Annotated, ClassVar

import numpy as np

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.options import OneOf, Range
from gyral.data.flare import LANGUAGES, OPENING, Dyck
from gyral.data.languages import Language, draw_outside
from gyral.data.transductions import encode
from gyral.tasks.tracking import TrackingData, TrackingTask

QUESTION = "?"  # the end symbol; = is a letter of some languages


class RecognitionData(TrackingData):
    """Words of which half are in the language on average, and a label at the end.

    Those outside are half uniform words, half words in the language after random edits; see
    `gyral.data.languages.draw_outside`. Words inside and outside have the same lengths: those for which there are both.

    Args:
        language: even_pairs, repeat_01, parity, cycle_navigation, modular_arithmetic_simple, first, majority,
            stack_manipulation, marked_reversal, unmarked_reversal, marked_copy, missing_duplicate, odds_first,
            binary_addition, binary_multiplication, compute_sqrt, bucket_sort or dyck.
        brackets: kinds of brackets of dyck, up to 10.
        depth: the most open brackets of dyck.
        length, shortest, test_factors, test_range, bos: see `gyral.tasks.tracking.TrackingData`. Lengths for which
            there are no words are left out; if no others remain, the next smaller one is used.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"length": 12}

    language: Annotated[str, OneOf((*LANGUAGES, "dyck"))] = "parity"
    brackets: Annotated[int, Range(1, len(OPENING))] = 2
    depth: Annotated[int, Range(1, 100)] = 3
    length = 40
    shortest = 1
    val_batches = 8

    def check(self) -> None:
        check_integer("length", self.length, minimum=self.make_language().shortest)
        super().check()

    def __post_init__(self) -> None:
        self.grammar = self.make_language()
        self.letters, self.classes = tuple(self.grammar.letters), ("0", "1")
        super().__post_init__()
        self.inputs = (*self.inputs[:-1], QUESTION)

    def make_language(self) -> Language:
        """Return the language."""
        return Dyck(self.brackets, self.depth) if self.language == "dyck" else LANGUAGES[self.language]()

    def lengths_of_words(self, lengths: np.ndarray) -> np.ndarray:
        fewest, step = self.grammar.shortest, self.grammar.step
        found = lengths[(lengths >= fewest) & ((lengths - fewest) % step == 0)]
        if lengths[-1] < fewest:
            raise OptionError("test_range", lengths[[0, -1]].tolist(), f"a word has at least {fewest} symbols")
        return found if len(found) else lengths - (lengths - fewest) % step

    def words(self, generator: np.random.Generator, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = generator.integers(2, size=len(lengths))
        source = random.Random(int(generator.integers(2**62)))  # faster than NumPy for single numbers
        language, longest = self.grammar, int(lengths.max())
        words = [
            language.draw(source, length) if label else draw_outside(language, source, length)
            for label, length in zip(labels.tolist(), lengths.tolist(), strict=True)
        ]
        return encode([word.ljust(longest, language.letters[0]) for word in words], language.letters), labels

    def frequencies(self) -> np.ndarray:
        return np.full((self.longest, 2), 0.5)


class RecognitionTask(TrackingTask[RecognitionData]):
    """Recognition of the languages of FLaRe (Butoi et al. 2025, "Training Neural Networks as Recognizers of Formal
    Languages", arXiv:2411.07107), with the definitions and alphabets of their code.

    There, 10,000 words with lengths of 0 to 40 are in training, and up to 500 in the test; the loss may have further
    terms, such as that of the next symbol, and ten runs differ in their hyperparameters. Here no word is repeated, and
    the length tells nothing about the label: in the publication, words outside have all lengths, even if all words of
    the language have an odd number of symbols. Empty words are left out. The labels of all published files follow from
    the definitions here, except for 943 of the 5,010 words in the test of compute_sqrt, whose roots are rounded to
    floating-point numbers there.

    A predictor without memory cannot do better than guess: its loss is ln 2, and its accuracy 1/2.
    """

    data_class = RecognitionData
