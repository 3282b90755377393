"""Algorithms on sequences of symbols: copy, reverse, flip bigrams, double and add numbers.

An example of task.name=copy, where ( begins the input, ? ends it, and . ends the answer:

    input       ( 3 1 7 ? ? ? ?
    target      · · · · 3 1 7 .

The input is ? during the answer. The other algorithms, without the marks:

    reverse       3 1 7 → 7 1 3
    bigram_flip   3 1 7 2 → 1 3 2 7
    double        3 1 7 → 6 2 4 1       713 · 2 = 1426, least significant digit first
    addition      3 5 1 9 → 8 0 1       13 + 95 = 108, interleaved digits
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import percentage
from gyral.core.options import Increasing, OneOf, PositiveInt
from gyral.data.batching import Batch
from gyral.data.drawn import answer_batch
from gyral.tasks.answer import AnswerData, AnswerTask

MARKS = ("(", "?", ".")  # start of input, end of input, end of output: the last three symbols of the vocabulary
DIGITS = 10


class Protocol(NamedTuple):
    """The protocol of an algorithm in Yang (2016).

    Attributes:
        vocabulary_size: number of symbols, including the three marks.
        train_lengths: shortest and longest length in training, in symbols, bigrams, or digits of a number.
        test_factors: tests at multiples of the training lengths that have published results.
        width: symbols per unit of length.
    """

    vocabulary_size: int
    train_lengths: tuple[int, int]
    test_factors: tuple[int, ...]
    width: int = 1


PROTOCOLS = {
    "copy": Protocol(128, (2, 64), (1, 2, 4, 5)),
    "reverse": Protocol(128, (2, 64), (1, 2, 4, 5)),
    "bigram_flip": Protocol(128, (2, 32), (1, 2, 4, 8), width=2),
    "double": Protocol(14, (2, 40), (1, 2, 4, 8)),
    "addition": Protocol(14, (2, 16), (1, 2, 4), width=2),
}
ARITHMETIC = ("double", "addition")


class AlgorithmData(AnswerData):
    """Sequences of mixed lengths: the length of each row is uniform in the range of its split or test.

    The tokens and the classes are the same symbols.

    Args:
        name: copy, reverse, bigram_flip, double or addition.
        train_lengths: shortest and longest sequence in training and validation: numbers of symbols, of bigrams
            (bigram_flip), or of digits of each number (double, addition). None: the lengths of the paper.
        test_factors: the tests, as multiples of the longest training sequence, such as [1, 2, 4]; see `lengths`. None:
            the tests of the paper.
        vocabulary_size: number of symbols, including the three marks; for arithmetic at least 13. None: 128, or 14 for
            arithmetic, as in the paper.
        zero_padded: for double and addition, whether all digits of a number are uniform, so that smaller numbers are
            padded with zeros to the length, as in the paper; otherwise the first digit is not zero.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"train_lengths": [2, 5], "test_factors": [1, 2], "vocabulary_size": 16}

    name: Annotated[str, OneOf(PROTOCOLS)] = "copy"
    train_lengths: Annotated[Sequence[int], Increasing(count=2)] | None = None
    test_factors: Annotated[Sequence[int], Increasing()] | None = None
    vocabulary_size: PositiveInt | None = None
    zero_padded: bool = False
    batch_size = 32
    test_batches = 100

    def check(self) -> None:
        if self.vocabulary_size is not None:
            smallest = (DIGITS if self.name in ARITHMETIC else 2) + len(MARKS)
            check_integer("vocabulary_size", self.vocabulary_size, minimum=smallest, maximum=10**6)
        if self.test_factors is not None and self.test_factors[:1] != [1]:
            raise OptionError("test_factors", self.test_factors, "must begin with 1, the lengths of training")

    def __post_init__(self) -> None:
        protocol = PROTOCOLS[self.name]
        self.width = protocol.width
        self.symbols = self.vocabulary_size or protocol.vocabulary_size
        self.start, self.end_of_input, self.end = range(self.symbols - len(MARKS), self.symbols)
        self.shortest, self.longest = self.train_lengths or protocol.train_lengths
        self.factors = list(self.test_factors or protocol.test_factors)
        self.inputs = self.outputs = (*map(str, range(self.symbols - len(MARKS))), *MARKS)
        self.max_writes = 1 + self.width * self.longest * self.factors[-1]
        self.categories = [f"{factor}x" for factor in self.factors]
        self.tests = len(self.factors)

    def lengths(self, test: int) -> tuple[int, int]:
        """Return the shortest and the longest length of a test.

        Test 1x has the lengths of training, up to n, and test fx has the lengths from pn + 1 to fn, where p is the
        largest power of two below f. For example, 2x has the lengths from n + 1 to 2n, and 5x from 4n + 1 to 5n. Yang
        (2016) publishes 1x and 2x in this form; the lower bounds of the other tests are a choice.
        """
        factor = self.factors[test]
        if factor == 1:
            return self.shortest, self.longest
        return self.longest * 2 ** ((factor - 1).bit_length() - 1) + 1, self.longest * factor

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        shortest, longest = self.lengths(test)
        lengths = generator.integers(shortest, longest + 1, self.size_of(split))
        steps = lengths.max()
        if self.name in ARITHMETIC:
            # Addition has two numbers in the last dimension, double has one.
            symbols = generator.integers(0, DIGITS, (self.size_of(split), steps, self.width))
            if not self.zero_padded:
                rows = np.arange(self.size_of(split))
                symbols[rows, lengths - 1] = generator.integers(1, DIGITS, (self.size_of(split), self.width))
            symbols[np.arange(steps) >= lengths[:, None]] = 0
            questions = symbols.reshape(self.size_of(split), -1)
        else:
            questions = generator.integers(0, self.symbols - len(MARKS), (self.size_of(split), steps * self.width))
        categories = np.zeros((self.size_of(split), 1 + len(self.factors)), dtype=bool)
        categories[:, 0] = test == 0
        categories[:, 1 + test] = True
        return self.assemble(questions, lengths, categories)

    def assemble(self, questions: np.ndarray, lengths: np.ndarray, categories: np.ndarray | None = None) -> Batch:
        """Return the batch of some sequences with their answers.

        Args:
            questions: (B, S) symbols without marks; beyond a row's length, digits are 0 and other symbols are ignored.
            lengths: (B,) lengths, in units of `width` symbols.
            categories: see `Batch`.
        """
        rows = len(questions)
        answers = np.concatenate([self.solve(questions, lengths), np.zeros((rows, 1), dtype=questions.dtype)], axis=1)
        answer_lengths = lengths + 1 if self.name in ARITHMETIC else lengths * self.width
        answers[np.arange(rows), answer_lengths] = self.end
        started = np.concatenate([np.full((rows, 1), self.start), questions], axis=1)
        return answer_batch(
            started, 1 + lengths * self.width, answers, answer_lengths + 1, self.end_of_input, categories=categories
        )

    def solve(self, questions: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the answers (B, ≥ the longest answer) to questions, without the mark that ends them."""
        step = np.arange(questions.shape[1])
        if self.name == "copy":
            return questions
        if self.name == "reverse":
            return np.take_along_axis(questions, np.maximum(lengths[:, None] - 1 - step, 0), axis=1)
        if self.name == "bigram_flip":
            return questions[:, step ^ 1]
        first = questions[:, :: self.width]
        return add_digits(first, questions[:, self.width - 1 :: self.width])


def add_digits(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the digits (B, k + 1) of sums of numbers (B, k), all with the least significant digit first."""
    sums = np.zeros((len(first), first.shape[1] + 1), dtype=first.dtype)
    carry = np.zeros(len(first), dtype=first.dtype)
    for place in range(first.shape[1]):
        total = first[:, place] + second[:, place] + carry
        sums[:, place], carry = total % DIGITS, total // DIGITS
    sums[:, -1] = carry
    return sums


REPORTED_FACTORS = (1, 2, 4, 5, 8)  # the published tests, which reports show


class AlgorithmTask(AnswerTask[AlgorithmData]):
    """The algorithmic tasks of Yang (2016), arXiv:1602.08671.

    The input is a start symbol, the sequence, and end-of-input symbols up to the end of the answer. The model may write
    to an external memory until the end of the sequence. It answers with symbols of the same vocabulary and ends with
    the end-of-output symbol. The loss is the cross-entropy over the answer. A test has several lengths at once. At
    twice the training lengths, `test/fine_2x` is the share of correct symbols, including the end-of-output symbol, and
    `test/coarse_2x` is the share of answers without an error. `test/loss`, `test/fine` and `test/coarse` are measured
    at the training lengths.

    For the permutations (copy, reverse, bigram_flip), the vocabulary has 125 symbols and three marks. For arithmetic,
    it has ten digits, three marks and, as in the paper, one symbol that does not occur.
    """

    data_class = AlgorithmData
    measures = (
        *AnswerTask.measures,
        *(percentage(f"coarse_{factor}x", f"right answers at {factor}×") for factor in REPORTED_FACTORS),
        *(percentage(f"fine_{factor}x", f"right symbols at {factor}×") for factor in REPORTED_FACTORS),
    )

    def encode(self, text: str) -> Batch:
        """Return a sequence as a batch of one row.

        Args:
            text: symbols with spaces between them, "17 4 99"; for double, a number, "713"; for addition, two numbers,
                "13+95". Numbers are written as usual, with the most significant digit first.
        """
        if self.data.name in ARITHMETIC:
            count = 2 if self.data.name == "addition" else 1
            numbers = [number.strip() for number in text.split("+")]
            if len(numbers) != count or not all(number.isascii() and number.isdigit() for number in numbers):
                form = "two numbers, such as 13+95" if count == 2 else "a number, such as 713"
                raise OptionError("sequence", text, f"must be {form}")
            length = max(map(len, numbers))
            digits = [[int(digit) for digit in reversed(number.zfill(length))] for number in numbers]
            symbols = np.array(digits).T.reshape(-1)
        else:
            length, symbols = self._symbols(text)
        return self.data.assemble(symbols[None], np.array([length]))

    def _symbols(self, text: str) -> tuple[int, np.ndarray]:
        largest = self.data.symbols - len(MARKS) - 1
        words = text.split()
        if unknown := [word for word in words if word not in self.inputs[: largest + 1]]:
            reason = f"{unknown[0]!r} is not a symbol; the symbols are the numbers from 0 to {largest}"
            raise OptionError("sequence", text, reason)
        if not words or len(words) % self.data.width:
            kind = "symbols" if self.data.width == 1 else "pairs of symbols"
            raise OptionError("sequence", text, f"must be {kind} with spaces between them, such as 17 4 99 12")
        return len(words) // self.data.width, np.array([int(word) for word in words])

    def decode(self, answer: Sequence[int]) -> str:
        """Return the text of an answer; numbers have the most significant digit first."""
        if self.data.name not in ARITHMETIC:
            return super().decode(answer)
        found = list(answer)
        ended = self.end in found
        number = "".join(self.outputs[each] for each in reversed(found[: found.index(self.end) if ended else None]))
        return number.lstrip("0") or number[-1:] if ended else f"…{number}"
