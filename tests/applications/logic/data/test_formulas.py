"""Truth tables of formulas, and the seven relations."""

import itertools

import pytest

from gyral.applications.logic.data.formulas import ALWAYS, RELATIONS, VARIABLES, relation, truth_table


def table(text: str) -> int:
    return truth_table(text.split())


@pytest.mark.parametrize(
    ("formula", "python"),
    [
        ("a", "a"),
        ("( not f )", "not f"),
        ("( a ( and b ) )", "a and b"),
        ("( ( not ( c ( or d ) ) ) ( or ( e ( and ( not a ) ) ) ) )", "(not (c or d)) or (e and not a)"),
    ],
)
def test_a_truth_table_equals_the_expression_in_python(formula: str, python: str) -> None:
    found = table(formula)
    for row, values in enumerate(itertools.product((False, True), repeat=len(VARIABLES))):
        assigned = dict(zip(VARIABLES, reversed(values), strict=True))
        assert bool(found >> row & 1) == eval(python, {}, assigned)


def test_each_relation_has_its_definition() -> None:
    pairs = {
        "=": ("( not ( a ( and b ) ) )", "( ( not a ) ( or ( not b ) ) )"),
        "<": ("( a ( and b ) )", "a"),
        ">": ("( a ( or b ) )", "a"),
        "^": ("( not a )", "a"),
        "|": ("( a ( and b ) )", "( not a )"),
        "v": ("( a ( or b ) )", "( not a )"),
        "#": ("a", "b"),
    }
    assert {*pairs} == {*RELATIONS}
    for sign, (first, second) in pairs.items():
        assert relation(table(first), table(second)) == sign
        mirrored = {"<": ">", ">": "<"}.get(sign, sign)
        assert relation(table(second), table(first)) == mirrored
    assert table("( a ( or ( not a ) ) )") == ALWAYS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "ends before the formula is complete"),
        ("( not a", "ends before the formula is complete"),
        ("a b", "has 'b' after the end of the formula"),
        ("( a or b )", r"has 'or' where '\(' must be"),
        ("( a ( xor b ) )", "has 'xor' where 'and' or 'or' must be"),
        ("( a ( and b )", "ends before the formula is complete"),
        ("( a ( and b b ) )", r"has 'b' where '\)' must be"),
        ("g", r"has 'g' where a formula must begin: a variable, a, b, c, d, e, f, or '\('"),
    ],
)
def test_invalid_formulas_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        table(text)


def test_brackets_may_be_deep() -> None:
    assert truth_table(["(", "not"] * 5001 + ["a"] + [")"] * 5001) == table("( not a )")
    assert truth_table(["("] * 5000 + ["a"] + ["(", "and", "a", ")", ")"] * 5000) == table("a")
    with pytest.raises(ValueError, match="ends before the formula is complete"):
        truth_table(["("] * 5000)
