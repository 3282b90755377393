"""The languages of FLaRe (Butoi et al. 2025).

The definitions and alphabets are those of the authors' code, rycolab/neural-network-recognizers, in
`src/recognizers/hand_picked_languages`. Numbers in binary begin with the least significant bit and may end with zeros.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from gyral.data.languages import AutomatonLanguage, Language

BITS = "01"
SEPARATOR = "#"
MODULUS = 5
DIGITS = "01234"
OPENING, CLOSING = "([{<abcdef", ")]}>ABCDEF"  # the brackets of each kind


def even_pairs() -> Language:
    """Bits of which the first and the last one are equal; then the number of neighbors that differ is even."""
    table = [{"0": 1, "1": 3}, {"0": 1, "1": 2}, {"0": 1, "1": 2}, {"1": 3, "0": 4}, {"1": 3, "0": 4}]
    return AutomatonLanguage(BITS, table, {0, 1, 3}, shortest=2)


def repeat_01() -> Language:
    """01, any number of times."""
    return AutomatonLanguage(BITS, [{"0": 1}, {"1": 0}], {0}, shortest=2, step=2)


def parity() -> Language:
    """Bits with an odd number of ones."""
    return AutomatonLanguage(BITS, [{"0": 0, "1": 1}, {"0": 1, "1": 0}], {1})


def first() -> Language:
    """Bits of which the first one is 1."""
    return AutomatonLanguage(BITS, [{"1": 1}, {"0": 1, "1": 1}], {1})


def cycle_navigation() -> Language:
    """Steps > (forwards), < (backwards) and = (none) on a cycle of five places, then the number of the place."""
    moves = {">": 1, "<": -1, "=": 0}
    table: list[Mapping[str, int]] = [
        {**{letter: (place + move) % MODULUS for letter, move in moves.items()}, str(place): MODULUS}
        for place in range(MODULUS)
    ]
    return AutomatonLanguage("".join(moves) + DIGITS, [*table, {}], {MODULUS})


def modular_arithmetic_simple() -> Language:
    """An equation modulo 5 of digits and +, − and ∗, computed from left to right, and its value after "="."""
    operators: dict[str, Callable[[int, int], int]] = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
    values = [1 + value for value in range(MODULUS)]  # the states after the values
    table: list[dict[str, int]] = [dict(zip(DIGITS, values, strict=True)), *({} for _ in values)]
    for value in range(MODULUS):
        for operator, compute in operators.items():
            table[1 + value][operator] = len(table)
            table.append({str(other): 1 + compute(value, other) % MODULUS for other in range(MODULUS)})
    end = len(table) + MODULUS
    for value in range(MODULUS):
        table[1 + value]["="] = len(table)
        table.append({str(value): end})
    return AutomatonLanguage(DIGITS + "".join(operators) + "=", [*table, {}], {end}, shortest=3, step=2)


class Dyck(Language):
    """Balanced brackets of several kinds, with at most `depth` open ones.

    Args:
        brackets: number of kinds, up to 10.
        depth: the most open brackets.
    """

    shortest = step = 2

    def __init__(self, brackets: int, depth: int) -> None:
        self.opening, self.depth = OPENING[:brackets], depth
        self.closing = dict(zip(self.opening, CLOSING, strict=False))
        self.letters = self.opening + CLOSING[:brackets]
        # The choices depend on the number of open brackets alone; ")" closes any of them.
        table = [
            {**dict.fromkeys(self.opening if level < depth else "", level + 1), **({")": level - 1} if level else {})}
            for level in range(depth + 1)
        ]
        self._levels = AutomatonLanguage(self.opening + ")", table, {0})

    def contains(self, word: str) -> bool:
        expected: list[str] = []
        for letter in word:
            if letter in self.closing:
                expected.append(self.closing[letter])
                if len(expected) > self.depth:
                    return False
            elif not expected or expected.pop() != letter:
                return False
        return not expected

    def draw(self, source: random.Random, length: int) -> str:
        found, expected = "", list[str]()
        for letter in self._levels.draw(source, length):
            if letter in self.closing:
                expected.append(self.closing[letter])
                found += letter
            else:
                found += expected.pop()
        return found


class Majority(Language):
    """Bits with more ones than zeros. In random words, the number of ones is uniform."""

    def contains(self, word: str) -> bool:
        return 2 * word.count("1") > len(word)

    def draw(self, source: random.Random, length: int) -> str:
        ones = source.randint(length // 2 + 1, length)
        return "".join(source.sample("1" * ones + "0" * (length - ones), length))


class StackManipulation(Language):
    """Bits, which are a stack with its top at the end; then + and a bit to push it, or - to pop; then # and the stack.

    The stack is from top to bottom; an empty one is not popped. A word with s bits at the beginning and p pushes has
    2s + 3p + 1 letters. In random words, all such pairs are equally likely, and so are + and - where both are possible;
    a further + is the end of the actions.
    """

    letters = BITS + "+-" + SEPARATOR
    shortest = 3

    def contains(self, word: str) -> bool:
        actions, separator, result = word.partition(SEPARATOR)
        bits = len(actions) - len(actions.lstrip(BITS))
        stack, place = list(actions[:bits]), bits
        while place < len(actions):
            if actions[place] == "-" and stack:
                stack.pop()
                place += 1
            elif actions[place] == "+" and actions[place + 1 : place + 2] in ("0", "1"):
                stack.append(actions[place + 1])
                place += 2
            else:
                return False
        return separator != "" and result == "".join(reversed(stack))

    def draw(self, source: random.Random, length: int) -> str:
        pushes = source.choice([each for each in range((length - 1) // 3 + 1) if (length - 1 - 3 * each) % 2 == 0])
        word = _bits(source, (length - 1 - 3 * pushes) // 2)
        stack = list(word)
        while True:
            if stack and source.random() < 0.5:
                stack.pop()
                word += "-"
            elif pushes:
                pushes -= 1
                stack.append(source.choice(BITS))
                word += "+" + stack[-1]
            else:
                return word + SEPARATOR + "".join(reversed(stack))


class Transduced(Language):
    """A word, # and a function of it that has the same number of letters.

    Args:
        answer: the function.
        symbols: the letters of the word.
    """

    step = 2

    def __init__(self, answer: Callable[[str], str], symbols: str = BITS) -> None:
        self.answer, self.symbols = answer, symbols
        self.letters = symbols + SEPARATOR

    def contains(self, word: str) -> bool:
        before, separator, after = word.partition(SEPARATOR)
        return separator != "" and after == self.answer(before)

    def draw(self, source: random.Random, length: int) -> str:
        word = "".join(source.choices(self.symbols, k=length // 2))
        return word + SEPARATOR + self.answer(word)


class UnmarkedReversal(Language):
    """Bits, and the same bits in reverse order."""

    shortest = step = 2

    def contains(self, word: str) -> bool:
        return len(word) % 2 == 0 and word == word[::-1]

    def draw(self, source: random.Random, length: int) -> str:
        half = _bits(source, length // 2)
        return half + half[::-1]


class MissingDuplicate(Language):
    """Bits, twice, with _ in place of one 1."""

    letters = BITS + "_"
    shortest = step = 2

    def contains(self, word: str) -> bool:
        half = len(word) // 2
        whole = word.replace("_", "1")
        return word.count("_") == 1 and whole == 2 * whole[:half]

    def draw(self, source: random.Random, length: int) -> str:
        half, place = _bits(source, length // 2), source.randrange(length // 2)
        word = 2 * (half[:place] + "1" + half[place + 1 :])
        missing = source.choice([index for index, bit in enumerate(word) if bit == "1"])
        return word[:missing] + "_" + word[missing + 1 :]


class Arithmetic(Language):
    """Two numbers in binary with an operator between them, then = and the result.

    The lengths of the three numbers are proportional to Dirichlet variables, and the shorter of the two operands, which
    is drawn first, is the first or the second one. Each is uniform among the numbers that the length of the result
    allows.

    Args:
        operator: "+" or "*".
        compute: the operation.
        weights: parameters of the Dirichlet distribution.
    """

    shortest = 5

    def __init__(self, operator: str, compute: Callable[[int, int], int], weights: Sequence[int]) -> None:
        self.letters = BITS + operator + "="
        self.operator, self.compute, self.weights = operator, compute, weights

    def contains(self, word: str) -> bool:
        operands, _, result = word.partition("=")
        one, _, other = operands.partition(self.operator)
        first, second, third = map(_number, (one, other, result))
        if first is None or second is None or third is None:
            return False
        return self.compute(first, second) == third

    def draw(self, source: random.Random, length: int) -> str:
        *operands, places = _lengths(source, self.weights, length - 2)
        fewer, more = sorted(operands)
        limit = (1 << places) - 1
        is_sum = self.operator == "+"
        small = source.randint(0, min((1 << fewer) - 1, limit) if is_sum else (1 << fewer) - 1)
        bound = limit - small if is_sum else limit // small if small else math.inf
        large = source.randint(0, int(min((1 << more) - 1, bound)))
        texts = [_binary(small, fewer), _binary(large, more)]
        if source.random() < 0.5:
            texts.reverse()
        return f"{texts[0]}{self.operator}{texts[1]}={_binary(self.compute(small, large), places)}"


class ComputeSqrt(Language):
    """A number in binary, then = and the floor of its square root. Lengths and numbers are as in `Arithmetic`."""

    letters = BITS + "="
    shortest = 3

    def contains(self, word: str) -> bool:
        before, _, after = word.partition("=")
        number, root = _number(before), _number(after)
        return number is not None and root == math.isqrt(number)

    def draw(self, source: random.Random, length: int) -> str:
        places, of_root = _lengths(source, (2, 1), length - 1)
        number = source.randrange(1 << min(places, 2 * of_root))
        return f"{_binary(number, places)}={_binary(math.isqrt(number), of_root)}"


def _bits(source: random.Random, length: int) -> str:
    return "".join(source.choices(BITS, k=length))


def _binary(number: int, places: int) -> str:
    """Return a number in binary, the least significant bit first, with zeros at the end."""
    return f"{number:0{places}b}"[::-1]


def _number(bits: str) -> int | None:
    """Return the value of a number in binary, or None if the text is none."""
    return int(bits[::-1], 2) if bits and not bits.strip(BITS) else None


def _lengths(source: random.Random, weights: Sequence[int], total: int) -> list[int]:
    """Return numbers ≥ 1 with the sum `total`, whose shares of the rest are a Dirichlet variable, rounded."""
    free = total - len(weights)
    shares = [source.gammavariate(weight, 1) for weight in weights]
    ends = [int(free * end / sum(shares)) for end in accumulate(shares[:-1])]
    return [1 + end - begin for begin, end in zip([0, *ends], [*ends, free], strict=True)]


LANGUAGES: dict[str, Callable[[], Language]] = {
    "even_pairs": even_pairs,
    "repeat_01": repeat_01,
    "parity": parity,
    "cycle_navigation": cycle_navigation,
    "modular_arithmetic_simple": modular_arithmetic_simple,
    "first": first,
    "majority": Majority,
    "stack_manipulation": StackManipulation,
    "marked_reversal": lambda: Transduced(lambda word: word[::-1]),
    "unmarked_reversal": UnmarkedReversal,
    "marked_copy": lambda: Transduced(lambda word: word),
    "missing_duplicate": MissingDuplicate,
    "odds_first": lambda: Transduced(lambda word: word[::2] + word[1::2]),
    "binary_addition": lambda: Arithmetic("+", int.__add__, (1, 1, 1)),
    "binary_multiplication": lambda: Arithmetic("*", int.__mul__, (1, 1, 2)),
    "compute_sqrt": ComputeSqrt,
    "bucket_sort": lambda: Transduced(lambda word: "".join(sorted(word)), "12345"),
}
