"""How frequent the symbols of the answers of `gyral.data.transductions` are, by closed forms."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np


class Frequencies(NamedTuple):
    """How frequent the symbols of the answers to words of one length are.

    Attributes:
        answers: (m, classes) the probability of each symbol at each place.
        hits: the mean number of symbols that count and are the most frequent one of their place.
        counted: the mean number of symbols that count.
        whole: the probability that all symbols that count are the most frequent ones of their places.
    """

    answers: np.ndarray
    hits: float
    counted: float
    whole: float


def frequencies_before_end(longer: np.ndarray, ones: np.ndarray, whole: Callable[[np.ndarray], float]) -> Frequencies:
    """Return the frequencies of bits, an end, and zeros that do not count.

    Args:
        longer: (m,) the probability that there are more than j bits, for each place j.
        ones: (m,) the probability that place j has the bit 1.
        whole: returns the probability of all symbols of the answer, (m,), up to its first end.
    """
    reached = np.concatenate([[1.0], longer[:-1]])
    counted = np.stack([longer - ones, ones, reached - longer], axis=1)
    answers = counted.copy()
    answers[:, 0] += 1 - reached
    best = counted.round(9).argmax(axis=1)  # the first one of equally frequent symbols, whatever the rounding errors
    return Frequencies(answers, float(counted.max(axis=1).sum()), float(counted.sum()), whole(best))


def stack_heights(length: int) -> np.ndarray:
    """Return the probability of each height of the final stack of `StackManipulation`, (length + 1,)."""
    if length == 1:
        return np.array([0.0, 1.0])
    return _sums_of_heights(1 << length.bit_length())[length, : length + 1] / (length - 1)


@lru_cache(maxsize=1)
def _sums_of_heights(longest: int) -> np.ndarray:
    """Return the sums over all numbers of bits of the probabilities of each height, (lengths, heights)."""
    found = np.zeros((longest + 1, longest + 1))
    for length in range(2, longest + 1):
        before = found[length - 1].copy()
        before[length - 1] += 1  # a word of bits alone
        found[length, 1:] = before[:-1] * 2 / 3
        found[length, :-1] += before[1:] / 3
        found[length, 0] += before[0] / 3
    return found


def stack_agreement(best: np.ndarray) -> np.ndarray:
    """Return the probability that a stack has the symbols `best`, (m,), up to its end, for each height of it, (m,)."""
    bits = np.where(best < 2, 0.5, 0)
    return np.concatenate([[1.0], bits[:-1].cumprod()]) * (best == 2)


def bits_of_sums(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for `BinaryAddition` the probabilities that the sum has more than j bits, and that its bit j is 1.

    Let the numbers have s ≤ l bits. There are (2^s − 1)(2^l − 1) pairs. For j < l, half of all pairs of numbers have
    a bit j of 1 if they may be 0; those with a 0 are subtracted. The bit l is the carry. A sum has at most j bits if it
    is at most 2^j − 1. The sums over s are differences of cumulative sums.
    """
    half = (length - 1) // 2
    small = np.arange(1, half + 1)
    large = length - 1 - small
    one, other = np.exp2(-small), np.exp2(-large)
    weights = np.where(small == large, 1, 2) / (length - 2)
    shares = weights / ((1 - one) * (1 - other))

    def until(values: np.ndarray, last: np.ndarray | int) -> np.ndarray:
        """Return the sum of the values for s ≤ last."""
        return np.concatenate([[0], values.cumsum()])[np.clip(last, 0, half)]

    place = np.arange(length + 1)
    below = length - 2 - place  # j < l for s up to this number
    ones = (until(shares * (1 - one), below) - until(shares * other, below)) / 2
    ones += until(shares * other, np.minimum(place, below)) / 2
    ones[large] += shares * (1 - one) * np.exp2(small - large) / 2

    low = np.minimum(place, half)
    fewer = (1 - np.exp2(-low)) * (1 - np.exp2(1 - low)) * np.exp2(2 * low - (length - 1)) / 2
    at_most = fewer * (until(shares, half) - until(shares, place - 1))  # j ≤ s
    middle = np.minimum(place - 1, below + 1)  # s < j ≤ l
    at_most += np.exp2(place) * until(shares * (1 - one) * other, middle)
    at_most -= until(shares * (1 - one) * (other + np.exp2(small - 1 - large)), middle)
    at_most += until(weights, half) - until(weights, below + 1)  # l < j
    return (1 - at_most).clip(min=0), ones


def share_of_sums(length: int, best: np.ndarray) -> float:
    """Return the probability that a sum of `BinaryAddition` has the symbols `best`, (m,), up to its end."""
    bits = int((best == 2).argmax())
    if best[bits] != 2 or not bits or best[bits - 1] != 1:
        return 0.0
    total, share = int("".join(map(str, best[:bits][::-1])), 2), 0.0
    for first in range(1, length - 1):
        one, other = (1 << first) - 1, (1 << length - 1 - first) - 1
        share += max(0, min(one, total - 1) - max(1, total - other) + 1) / (one * other)
    return share / (length - 2)


def numbers_by_bit_of_root(numbers: int, bit: int) -> int:
    """Return how many of 0 … numbers − 1 have a root whose floor has the bit 1.

    Numbers from h² to (h + 1)² − 1 have the root h. With b = 2^bit, the roots (2i + 1) b … (2i + 2) b − 1 have the bit,
    and ((2i + 2)² − (2i + 1)²) b² = (4i + 3) b² numbers have these roots.
    """
    roots, size = math.isqrt(numbers - 1) + 1, 1 << bit
    blocks, rest = divmod(roots, 2 * size)
    found = (2 * blocks**2 + blocks) * size**2
    if not rest:
        found -= roots**2 - numbers  # the last root has fewer numbers
    elif rest > size:
        found += numbers - ((2 * blocks + 1) * size) ** 2
    return found
