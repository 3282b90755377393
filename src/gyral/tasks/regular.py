"""Regular languages as automata: parity, even pairs, cycle navigation, and modular arithmetic without brackets.

An example of modular arithmetic modulo 5; ^ begins the word:

    input       ^ 3 - 2 * 4 + 1
    target        3 3 1 1 0 0 1

The label after an operator is that of the expression before it. The other tasks, with their last labels:

    parity            1 0 1 1            → 1     the number of ones is odd
    even_pairs        0 0 1 0            → 0     the number of neighbors that differ is even
    cycle_navigation  +1 -1 0 -1 -1      → 3     the place on a cycle with 5 places
"""

from typing import Annotated

import numpy as np

from gyral.core.options import OneOf
from gyral.data.automata import Automaton
from gyral.tasks.tracking import AutomatonData, TrackingTask

MODULUS = 5  # in the publication
DIGITS = tuple(map(str, range(MODULUS)))


def parity() -> Automaton:
    """Return the automaton that counts the ones of a word of bits, modulo 2."""
    return Automaton(("0", "1"), np.array([[0, 1], [1, 0]]), np.arange(2), ("0", "1"))


def even_pairs() -> Automaton:
    """Return the automaton that counts the neighbors that differ in a word of bits, modulo 2.

    State 0 is that of the empty word, and state 1 + 2f + l that of words whose first and last bits are f and l. They
    differ if and only if the count is odd.
    """
    table = [[1, 4], *([1 + 2 * first, 2 + 2 * first] for first in (0, 1) for _ in (0, 1))]
    return Automaton(("0", "1"), np.array(table), np.array([0, 0, 1, 1, 0]), ("0", "1"))


def cycle_navigation() -> Automaton:
    """Return the automaton that adds steps of −1, 0 and 1, modulo 5."""
    table = (np.arange(MODULUS)[:, None] + [-1, 0, 1]) % MODULUS
    return Automaton(("-1", "0", "+1"), table, np.arange(MODULUS), DIGITS)


def modular_arithmetic() -> Automaton:
    """Return the automaton that computes expressions of digits, +, − and ∗, modulo 5; ∗ binds most tightly.

    A state after a digit is (sum, product): the sum of the finished terms, and the product so far of the last term,
    with its sign. A state after an operator is (sum, factor, value): the next digit, times the factor, is the product,
    and the value is that of the expression before the operator.
    """
    states: dict[tuple[int, ...], int] = {}

    def number(*state: int) -> int:
        return states.setdefault(tuple(each % MODULUS for each in state), len(states))

    number(0, 1, 0)  # the empty word: a product of no factors
    table: list[list[int]] = []
    while len(table) < len(states):
        state = list(states)[len(table)]
        if len(state) == 3:
            total, factor, _ = state
            table.append([*(number(total, factor * digit) for digit in range(MODULUS)), -1, -1, -1])
        else:
            total, product = state
            value = total + product
            after = number(value, 1, value), number(value, -1, value), number(total, product, value)
            table.append([-1] * MODULUS + [*after])
    labels = [state[2] if len(state) == 3 else sum(state) % MODULUS for state in states]
    return Automaton((*DIGITS, "+", "-", "*"), np.array(table), np.array(labels), DIGITS)


AUTOMATA = {
    "parity": parity,
    "even_pairs": even_pairs,
    "cycle_navigation": cycle_navigation,
    "modular_arithmetic": modular_arithmetic,
}


class RegularData(AutomatonData):
    """Random words of one of the automata.

    Args:
        name: parity, even_pairs, cycle_navigation or modular_arithmetic. In modular arithmetic, digits and operators
            alternate, and an even length is reduced by 1.
        length, shortest, test_factors, test_range, labels, bos: see `gyral.tasks.tracking.TrackingData`.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    name: Annotated[str, OneOf(AUTOMATA)] = "parity"

    def make_automaton(self) -> Automaton:
        return AUTOMATA[self.name]()

    def lengths_of_words(self, lengths: np.ndarray) -> np.ndarray:
        return lengths - (lengths + 1) % 2 if self.name == "modular_arithmetic" else lengths


class RegularTask(TrackingTask[RegularData]):
    """The regular tasks of Delétang et al. (2023), arXiv:2207.02098, with the alphabets of their code.

    There, and in Beck et al. (2024), arXiv:2405.04517, words have one label: `labels=end`. Training words have 1 to 40
    symbols (3 to 40 in the works that follow xLSTM), and test words 41 to 500 (40 to 256). Delétang et al. read the
    label at an empty symbol after the word, as here, and Beck et al. at the last symbol, which is = for modular
    arithmetic. Parity is also the word problem of Z2, `gyral.tasks.group`.

    Bits, steps, digits and operators are uniform. Labels of modular arithmetic are not: 0 is the most frequent one.
    """

    data_class = RegularData
