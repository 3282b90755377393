"""Draws programs of six kinds, each with the integer that it prints.

    kind            example                                               prints
    arithmetic      print((5997-738))                                     5259
    identity        print(4103)                                           4103
    multiplication  print((14*5608))                                      78512
    loop            b=1398;for x in range(10):b-=6843;print(b)            -67032
    substitution    f=3184;print((f-29))                                  3155
    conditional     print((4526 if 2881>1321 else 3532))                  4526

The kinds are those of Zaremba and Sutskever (2014, arXiv:1410.4615, section 4 and their code, data.lua) without nesting.
A semicolon separates statements.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

VARIABLES = "abcdefghij"
SYMBOLS = "".join(sorted({*"0123456789", *"print();=+-*<>", *"for x in range():", *"if else", *VARIABLES}))


class Parts(NamedTuple):
    """What the template of a program is filled with.

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
        templates: forms of the program, which are equally frequent.
        value: what the program prints.
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
OPERANDS = 5  # of `Parts`: a, b, c, d, small
SMALL = 4  # the small operand is from 1 to 4 times its number of digits


class Program(NamedTuple):
    """A program.

    Attributes:
        text: the program.
        value: what it prints.
        kind: its kind, a key of `KINDS`.
        digits: the largest number of digits of which an operand was drawn.
    """

    text: str
    value: int
    kind: str
    digits: int


def draw_program(generator: np.random.Generator, kinds: Sequence[str], digits: Sequence[int]) -> Program:
    """Draw a program. A number of k digits is uniform from 10^(k−1) to 10^k − 1.

    Args:
        generator: source of all random numbers.
        kinds: kinds, which are equally frequent.
        digits: number of digits of each of the `OPERANDS`.
    """
    kind = kinds[generator.integers(len(kinds))]
    templates, value = KINDS[kind]
    template = templates[generator.integers(len(templates))]
    a, b, c, d = (int(generator.integers(10 ** (count - 1), 10**count)) for count in digits[:-1])
    parts = Parts(
        a,
        b,
        c,
        d,
        small=int(generator.integers(1, SMALL * digits[-1] + 1)),
        sign="+-"[generator.integers(2)],
        order="<>"[generator.integers(2)],
        variable=VARIABLES[generator.integers(len(VARIABLES))],
    )
    used = [count for count, name in zip(digits, Parts._fields, strict=False) if f"{{{name}}}" in template]
    return Program(template.format(**parts._asdict()), value(parts), kind, max(used))


def longest_program(kinds: Sequence[str], digits: int) -> int:
    """Return the number of symbols of the longest program of some kinds, with numbers of so many digits."""
    number = 10**digits - 1
    parts = Parts(number, number, number, number, SMALL * digits, "+", "<", "a")
    return max(len(template.format(**parts._asdict())) for kind in kinds for template in KINDS[kind].templates)
