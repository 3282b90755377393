"""Draws programs of six kinds with the integers that they print.

    kind            example                                               prints
    arithmetic      print((5997-738))                                     5259
    identity        print(4103)                                           4103
    multiplication  print((14*5608))                                      78512
    loop            b=1398;for x in range(10):b-=6843;print(b)            -67032
    substitution    f=3184;print((f-29))                                  3155
    conditional     print((4526 if 2881>1321 else 3532))                  4526

The kinds come from Zaremba and Sutskever (2014, arXiv:1410.4615, section 4; wojciechz/learning_to_execute on GitHub),
without nesting. A semicolon separates statements.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

VARIABLES = "abcdefghij"
SYMBOLS = "".join(sorted({*"0123456789", *"print();=+-*<>", *"for x in range():", *"if else", *VARIABLES}))


class Parts(NamedTuple):
    """Values for the template of a program.

    Attributes:
        a, b, c, d: operands.
        small: operand of a multiplication, or number of passes of a loop.
        sign: "+" or "-".
        order: "<" or ">".
        variable: name of a variable.
    """

    a: int
    b: int
    c: int
    d: int
    small: int
    sign: str
    order: str
    variable: str


class Kind(NamedTuple):
    """A kind of program.

    Attributes:
        templates: one form of the program, or two that are equally frequent.
        value: the integer that the program prints.
    """

    templates: tuple[str, ...]
    value: Callable[[Parts], int]


def _signed(parts: Parts, value: int) -> int:
    return value if parts.sign == "+" else -value


KINDS = {
    "arithmetic": Kind(("print(({a}{sign}{b}))",), lambda parts: parts.a + _signed(parts, parts.b)),
    "identity": Kind(("print({a})",), lambda parts: parts.a),
    "multiplication": Kind(("print(({a}*{small}))", "print(({small}*{a}))"), lambda parts: parts.a * parts.small),
    "loop": Kind(
        ("{variable}={a};for x in range({small}):{variable}{sign}={b};print({variable})",),
        lambda parts: parts.a + parts.small * _signed(parts, parts.b),
    ),
    "substitution": Kind(
        ("{variable}={a};print(({variable}{sign}{b}))",), lambda parts: parts.a + _signed(parts, parts.b)
    ),
    "conditional": Kind(
        ("print(({a} if {b}{order}{c} else {d}))",),
        lambda parts: parts.a if (parts.b > parts.c if parts.order == ">" else parts.b < parts.c) else parts.d,
    ),
}
OPERANDS = 5  # operands of `Parts`: a, b, c, d, small
SMALL = 4  # the small operand is from 1 to 4 times its number of digits


class Program(NamedTuple):
    """A program.

    Attributes:
        text: the program.
        value: the integer that it prints.
        kind: its kind, a key of `KINDS`.
        digits: number of digits of its longest operand, besides the small one.
    """

    text: str
    value: int
    kind: str
    digits: int


def draw_programs(generator: np.random.Generator, kinds: Sequence[str], digits: np.ndarray) -> list[Program]:
    """Draw programs. A number of k digits is uniform from 10^(k−1) to 10^k − 1.

    Args:
        generator: source of all random numbers.
        kinds: kinds, which are equally frequent.
        digits: (n, `OPERANDS`), number of digits of each operand of each of n programs.
    """
    count = len(digits)
    numbers = generator.integers(10 ** (digits[:, :-1] - 1), 10 ** digits[:, :-1])
    small = generator.integers(1, SMALL * digits[:, -1:] + 1)
    choices = generator.integers(0, [len(kinds), 2, 2, 2, len(VARIABLES)], (count, 5))
    rows = np.concatenate([numbers, small, choices, digits], axis=1).tolist()
    return [_program(row, kinds) for row in rows]


def _program(row: list[int], kinds: Sequence[str]) -> Program:
    """Return the program of one row: operands, choices and digits."""
    a, b, c, d, small, kind, form, sign, order, variable, *digits = row
    templates, value = KINDS[kinds[kind]]
    template = templates[form % len(templates)]
    parts = Parts(a, b, c, d, small, "+-"[sign], "<>"[order], VARIABLES[variable])
    used = [size for size, name in zip(digits[:-1], Parts._fields, strict=False) if f"{{{name}}}" in template]
    return Program(template.format(**parts._asdict()), value(parts), kinds[kind], max(used))


def longest_program(kinds: Sequence[str], digits: int) -> int:
    """Return the number of symbols of the longest program of some kinds for a number of digits."""
    number = 10**digits - 1
    parts = Parts(number, number, number, number, SMALL * digits, "+", "<", "a")
    return max(len(template.format(**parts._asdict())) for kind in kinds for template in KINDS[kind].templates)
