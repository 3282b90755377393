"""Drawn programs against their evaluation and Python's, and the evaluation of written programs."""

import io
from collections import Counter
from contextlib import redirect_stdout

import numpy as np
import pytest

from gyral.data.programs.curriculum import Curriculum
from gyral.data.programs.drawing import KINDS, OPERANDS, SYMBOLS, draw_programs, longest_program
from gyral.data.programs.evaluation import ProgramError, evaluate_program


def run_python(program: str) -> int:
    """Return the output of Python for a program of the tests, with a line for each statement."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(program.replace(";", "\n"), {})
    return int(out.getvalue())


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_programs_print_what_they_say(kind: str) -> None:
    generator = np.random.default_rng(3)
    found = draw_programs(generator, [kind], np.tile([4, 3, 4, 4, 3], (150, 1)))
    for program in found:
        assert program.kind == kind
        assert evaluate_program(program.text) == run_python(program.text) == program.value
        assert set(program.text) <= set(SYMBOLS)
        assert len(program.text) <= longest_program([kind], 4)
    assert len({program.text for program in found}) > 100


def test_kinds_and_symbols_are_all_used() -> None:
    generator = np.random.default_rng(3)
    found = draw_programs(generator, tuple(KINDS), np.tile([1, 2, 3, 4, 4], (3000, 1)))
    counts = Counter(program.kind for program in found)
    assert all(400 < counts[kind] < 600 for kind in KINDS)
    assert {symbol for program in found for symbol in program.text} == set(SYMBOLS)
    # the digits of the operands that a program has
    assert {program.digits for program in found if program.kind == "identity"} == {1}
    assert {program.digits for program in found if program.kind == "arithmetic"} == {2}
    assert {program.digits for program in found if program.kind == "multiplication"} == {1}
    assert {program.digits for program in found if program.kind == "loop"} == {2}
    assert longest_program(tuple(KINDS), 4) == 42


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("print(4103)", 4103),
        ("print((14*5608))", 78512),
        ("f=3184;print((f-29))", 3155),
        ("b=1398;for x in range(10):b-=6843;print(b)", -67032),
        ("print((4526 if 2881>1321 else 3532))", 4526),
        ("print(-(2+3)*4)", -20),
        ("a=1;for x in range(4):a+=x;print(a)", 7),
        ("a=2;for x in range(0):a+=x;print((a if a<3 else 0))", 2),
    ],
)
def test_values(program: str, value: int) -> None:
    assert evaluate_program(program) == value


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "must end with print"),
        ("print(1", "must end with print"),
        ("print()", "'' is not an expression"),
        ("print(1)+(2)", r"'1\)\+\(2' is not an expression"),
        ("print(1/2)", "'1 / 2' is not allowed"),
        ("print(2**9)", r"'2 \*\* 9' is not allowed"),
        ("print(open('x'))", r"\"open\('x'\)\" is not allowed"),
        ("print(().__class__)", "is not allowed"),
        ("print(1.5)", "'1.5' is not allowed"),
        ("print(True)", "'True' is not allowed"),
        ("print((1 if 2 else 3))", "is not allowed"),
        ("print(a)", "'a' has no value"),
        ("for x in range(3):a+=1;print(a)", "'a' has no value"),
        ("import os;print(1)", "'import os' is neither an assignment nor a loop"),
        ("a=1;a+=2;print(a)", "'a\\+=2' is neither"),
        ("a=1;for x in range(9999):a+=1;print(a)", r"range\(9999\) must be at most 1000"),
        ("a=9;for x in range(999):a+=a*a;print(a)", "more than 50 digits"),
        (f"print({'(' * 300}1{')' * 300})", "is not an expression"),
        ("print(1\0)", "is not an expression"),
        (f"print({'1+' * 600}1)", "has 1208 symbols, and must have at most 1000"),
    ],
)
def test_invalid_programs_are_refused(program: str, said: str) -> None:
    with pytest.raises(ProgramError, match=said) as raised:
        evaluate_program(program)
    assert "\n" not in str(raised.value)


def test_half_of_the_combined_curriculum_is_naive_and_half_is_mixed() -> None:
    curriculum, generator = Curriculum("combined", 2, 4, 1), np.random.default_rng(3)
    drawn = curriculum.draw(generator, 2000, OPERANDS)
    assert 900 < (drawn == 2).all(axis=1).sum() < 1100
    assert set(drawn.flat) == {2, 3, 4}
