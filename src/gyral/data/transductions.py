"""The transductions of Delétang et al. (2023): random words, their answers, and how frequent each answer is.

The definitions and alphabets are those of the authors' code, google-deepmind/neural_networks_chomsky_hierarchy, in
`tasks/dcf` and `tasks/cs`. Lengths for which that code returns a constant are not allowed here.
"""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gyral.data.answer_frequencies import (
    Frequencies,
    bits_of_sums,
    frequencies_before_end,
    numbers_by_bit_of_root,
    share_of_sums,
    stack_agreement,
    stack_heights,
)
from gyral.data.expressions import draw_expression

BITS = ("0", "1")
END = "$"  # the symbol after an answer whose length is not that of its place, 2 in the authors' code
DRAWS = 2048  # words from which frequencies are estimated where there is no formula


class Pairs(NamedTuple):
    """Words of n symbols and their answers of m symbols.

    Attributes:
        words: (B, n) integers.
        answers: (B, m) integers.
        counted: (B, m) bool, the symbols that count in accuracies; None: all.
    """

    words: np.ndarray
    answers: np.ndarray
    counted: np.ndarray | None = None


class Transduction:
    """A function of words; in this base class, one whose answers are uniform bits.

    Attributes:
        inputs, outputs: names of the symbols of words and of answers.
        shortest: the fewest symbols of a word.
        exact: whether `frequencies` are exact.
    """

    inputs: tuple[str, ...] = BITS
    outputs: tuple[str, ...] = BITS
    shortest = 1
    exact = True

    def answer_length(self, length: int) -> int:
        """Return the number of symbols of an answer."""
        return length

    def draw(self, generator: np.random.Generator, length: int, rows: int) -> Pairs:
        """Return random words of one length, and their answers."""
        words = generator.integers(len(self.inputs), size=(rows, length))
        return Pairs(words, self.answer(words))

    def answer(self, words: np.ndarray) -> np.ndarray:
        """Return the answers (B, m) to words (B, n)."""
        raise NotImplementedError

    def frequencies(self, length: int) -> Frequencies:
        """Return how frequent the symbols of the answers are."""
        places, classes = self.answer_length(length), len(self.outputs)
        independent = min(places, length)  # symbols of the answer that do not follow from the others
        answers = np.full((places, classes), 1 / classes)
        return Frequencies(answers, places / classes, places, float(classes) ** -independent)


class ReverseString(Transduction):
    """The word from its last symbol to its first one."""

    def answer(self, words: np.ndarray) -> np.ndarray:
        return words[:, ::-1]


class DuplicateString(Transduction):
    """The word, twice."""

    def answer_length(self, length: int) -> int:
        return 2 * length

    def answer(self, words: np.ndarray) -> np.ndarray:
        return np.tile(words, 2)


class OddsFirst(Transduction):
    """The second, fourth, … symbol of the word, then the first, third, … one, as in the authors' code."""

    def answer(self, words: np.ndarray) -> np.ndarray:
        return np.concatenate([words[:, 1::2], words[:, ::2]], axis=1)


class MissingDuplicateString(Transduction):
    """A string of bits, twice, with one of all bits replaced by "_", which is the answer. An odd word ends with "."."""

    inputs = (*BITS, "_", ".")
    shortest = 2

    def answer_length(self, length: int) -> int:
        return 1

    def draw(self, generator: np.random.Generator, length: int, rows: int) -> Pairs:
        words = np.tile(generator.integers(2, size=(rows, length // 2)), 2)
        places = generator.integers(words.shape[1], size=(rows, 1))
        answers = np.take_along_axis(words, places, axis=1)
        np.put_along_axis(words, places, 2, axis=1)
        return Pairs(np.pad(words, ((0, 0), (0, length % 2)), constant_values=3), answers)


class SolveEquation(Transduction):
    """An expression with brackets, modulo 5, with one of its digits replaced by x, "=" and its value. The answer is x.

    The digit is the first one from a uniform place on, which begins again after the end.
    """

    modulus = 5
    inputs = (*map(str, range(modulus)), "+", "-", "(", ")", "x", "=")
    outputs = inputs[:modulus]
    shortest = 3

    def answer_length(self, length: int) -> int:
        return 1

    def draw(self, generator: np.random.Generator, length: int, rows: int) -> Pairs:
        words, answers = np.empty((rows, length), dtype=np.int64), np.empty((rows, 1), dtype=np.int64)
        unknown, equals = self.inputs.index("x"), self.inputs.index("=")
        symbols = length - 2
        for row, draws in enumerate(generator.random((rows, length)).tolist()):
            expression, value = draw_expression(symbols, iter(draws), self.modulus, operators=2)
            place = int(draws[-1] * symbols)
            while expression[place] >= self.modulus:
                place = (place + 1) % symbols
            answers[row] = expression[place]
            expression[place] = unknown
            words[row] = [*expression, equals, value]
        return Pairs(words, answers)


class BucketSort(Transduction):
    """The symbols of the word in increasing order."""

    inputs = outputs = ("0", "1", "2", "3", "4")

    def answer(self, words: np.ndarray) -> np.ndarray:
        return np.sort(words, axis=1)

    def frequencies(self, length: int) -> Frequencies:
        # Place j has at most v if more than j symbols are at most v; their number is binomial.
        classes, counts = len(self.outputs), np.arange(length + 1)
        factorials = np.concatenate([[0], np.log(np.arange(1, length + 1)).cumsum()])
        below = np.ones((classes, length))
        for symbol in range(classes - 1):
            p = (symbol + 1) / classes
            ways = factorials[length] - factorials - factorials[::-1]
            number = np.exp(ways + counts * math.log(p) + (length - counts) * math.log1p(-p))
            below[symbol] = number[:0:-1].cumsum()[::-1]
        answers = np.diff(below, axis=0, prepend=0).T.clip(min=0)
        most_frequent = np.bincount(answers.round(9).argmax(axis=1), minlength=classes)
        whole = math.exp(factorials[length] - factorials[most_frequent].sum() - length * math.log(classes))
        return Frequencies(answers, float(answers.max(axis=1).sum()), length, whole)


class StackManipulation(Transduction):
    """Bits, which are a stack with its top at the end, and then actions; the answer is the final stack, its top first.

    The number of bits is uniform from 1 to n − 1, and so is each action. Nothing happens to an empty stack at "pop".
    The answer has n + 1 symbols: the stack, the end, and zeros, which do not count in accuracies.
    """

    inputs = (*BITS, "pop", "push0", "push1")
    outputs = (*BITS, END)

    def answer_length(self, length: int) -> int:
        return length + 1

    def draw(self, generator: np.random.Generator, length: int, rows: int) -> Pairs:
        words = generator.integers(2, 5, size=(rows, length))
        heights = generator.integers(1, max(length, 2), size=rows)
        bits = generator.integers(2, size=(rows, length))
        is_bit = np.arange(length) < heights[:, None]
        words[is_bit] = bits[is_bit]
        stacks, every = np.zeros((rows, length + 1), dtype=np.int64), np.arange(rows)
        height = np.zeros(rows, dtype=np.int64)
        for column, read in zip(words.T, is_bit.T, strict=True):
            pop = (column == 2) & ~read
            pushed = np.where(read, column, column - 3)
            # The entry above the top changes nothing if the action is "pop".
            stacks[every, height] = pushed
            height = np.maximum(height + np.where(pop, -1, 1), 0)
        places = height[:, None] - 1 - np.arange(length + 1)
        answers = np.where(places >= 0, np.take_along_axis(stacks, places.clip(min=0), axis=1), 0)
        answers[every, height] = 2
        return Pairs(words, answers, places >= -1)

    def frequencies(self, length: int) -> Frequencies:
        # All bits on the stack are uniform, so that only its height matters.
        heights = stack_heights(length)
        longer = (1 - heights.cumsum()).clip(min=0)
        return frequencies_before_end(longer, longer / 2, lambda best: float(heights @ stack_agreement(best)))


class Numbers(Transduction):
    """Two positive numbers in binary, the least significant bit first, and an operator between them.

    The length of the first number is uniform from 1 to n − 2, and each number is uniform among those of its length,
    with zeros at the end, but 0. The answer is the result without zeros at the end, the end, and zeros, which do not
    count in accuracies.
    """

    operator = ""
    outputs = (*BITS, END)
    shortest = 3

    def compute(self, one: int, other: int) -> int:
        """Return the result."""
        raise NotImplementedError

    def draw(self, generator: np.random.Generator, length: int, rows: int) -> Pairs:
        source = random.Random(int(generator.integers(2**62)))  # faster than NumPy for single numbers
        words, answers = [], []
        for first in generator.integers(1, length - 1, size=rows).tolist():
            second = length - 1 - first
            one, other = source.randrange(1, 1 << first), source.randrange(1, 1 << second)
            words.append(f"{one:0{first}b}"[::-1] + self.operator + f"{other:0{second}b}"[::-1])
            answers.append(f"{self.compute(one, other):b}"[::-1] + END)
        places = self.answer_length(length)
        counted = np.arange(places) < np.array([[len(answer)] for answer in answers])
        padded = [answer.ljust(places, "0") for answer in answers]
        return Pairs(encode(words, self.inputs), encode(padded, self.outputs), counted)


class BinaryAddition(Numbers):
    """The sum of two numbers."""

    operator = "+"
    inputs = (*BITS, operator)

    def answer_length(self, length: int) -> int:
        return length + 1

    def compute(self, one: int, other: int) -> int:
        return one + other

    def frequencies(self, length: int) -> Frequencies:
        return frequencies_before_end(*bits_of_sums(length), lambda best: share_of_sums(length, best))


class BinaryMultiplication(Numbers):
    """The product of two numbers. There is no formula for the frequencies, which are estimated."""

    operator = "*"
    inputs = (*BITS, operator)
    exact = False

    def compute(self, one: int, other: int) -> int:
        return one * other

    def frequencies(self, length: int) -> Frequencies:
        _, drawn, counted = self.draw(np.random.default_rng(length), length, DRAWS)
        assert counted is not None
        symbols = np.arange(len(self.outputs))
        answers = (drawn[:, :, None] == symbols).mean(axis=0)
        # The predictor knows one half of the words and is measured on the other half.
        known, asked = np.split((drawn[:, :, None] == symbols) & counted[:, :, None], 2)
        right = known.sum(axis=0).argmax(axis=1) == drawn[DRAWS // 2 :]
        counted = counted[DRAWS // 2 :]
        hits = float((right & counted).sum(axis=1).mean())
        return Frequencies(answers, hits, float(asked.sum() / len(asked)), float((right | ~counted).all(axis=1).mean()))


class ComputeSqrt(Transduction):
    """A positive number in binary, the most significant bit first; the answer is the floor of its square root."""

    def answer_length(self, length: int) -> int:
        return (length + 1) // 2

    def draw(self, generator: np.random.Generator, length: int, rows: int) -> Pairs:
        source = random.Random(int(generator.integers(2**62)))
        numbers = [source.randrange(1, 1 << length) for _ in range(rows)]
        places = self.answer_length(length)
        words = [f"{number:0{length}b}" for number in numbers]
        answers = [f"{math.isqrt(number):0{places}b}" for number in numbers]
        return Pairs(encode(words, BITS), encode(answers, BITS))

    def frequencies(self, length: int) -> Frequencies:
        places, numbers = self.answer_length(length), 1 << length
        ones = np.array([numbers_by_bit_of_root(numbers, bit) / (numbers - 1) for bit in reversed(range(places))])
        answers = np.stack([1 - ones, ones], axis=1)
        best = int("".join(map(str, answers.round(9).argmax(axis=1))), 2)
        whole = max(min((best + 1) ** 2, numbers) - max(best**2, 1), 0) / (numbers - 1)
        return Frequencies(answers, float(answers.max(axis=1).sum()), places, whole)


TRANSDUCTIONS: dict[str, type[Transduction]] = {
    "stack_manipulation": StackManipulation,
    "reverse_string": ReverseString,
    "solve_equation": SolveEquation,
    "duplicate_string": DuplicateString,
    "missing_duplicate_string": MissingDuplicateString,
    "odds_first": OddsFirst,
    "binary_addition": BinaryAddition,
    "binary_multiplication": BinaryMultiplication,
    "compute_sqrt": ComputeSqrt,
    "bucket_sort": BucketSort,
}


def encode(words: Sequence[str], alphabet: Sequence[str]) -> np.ndarray:
    """Return equally long words of characters as numbers of these characters in the alphabet, (B, n)."""
    numbers = np.zeros(128, dtype=np.int64)
    numbers[[ord(symbol) for symbol in alphabet]] = np.arange(len(alphabet))
    return numbers[np.frombuffer("".join(words).encode("ascii"), dtype=np.uint8)].reshape(len(words), -1)
