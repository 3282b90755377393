"""Formulas of propositional logic over six variables, their truth tables, and the relation of two formulas.

A formula is a variable, a negation `( not X )`, or `( X ( and Y ) )` or `( X ( or Y ) )` with formulas X and Y, as in
the data of Bowman et al. (2015, arXiv:1506.04834). Its tokens are brackets and words.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_

VARIABLES = ("a", "b", "c", "d", "e", "f")
OPERATORS = ("not", "and", "or")
TOKENS = ("(", ")", *VARIABLES, *OPERATORS)

# Natural-logic relations of MacCartney (2009), in the notation of the data files
RELATIONS = {
    "=": "equivalence",
    "<": "forward entailment",
    ">": "reverse entailment",
    "^": "negation",
    "|": "alternation",
    "v": "cover",
    "#": "independence",
}
ASSIGNMENTS = 2 ** len(VARIABLES)  # number of assignments of truth values to the variables
ALWAYS = 2**ASSIGNMENTS - 1  # the truth table of a tautology

# A truth table is an integer with one bit for each assignment, 1 where the formula is true.
TABLES = {
    name: reduce(or_, (1 << row for row in range(ASSIGNMENTS) if row >> index & 1))
    for index, name in enumerate(VARIABLES)
}


def truth_table(tokens: Sequence[str]) -> int:
    """Return the truth table of a formula.

    Args:
        tokens: the tokens of the formula.

    Returns:
        An integer whose bit k is 1 if the formula is true where variable i has the value of bit i of k.

    Raises:
        ValueError: the tokens are not a formula; the message is the end of a sentence with the reason.
    """
    brackets: list[tuple[str, int]] = []  # that are open: what follows each, and the table of the left formula
    position = 0
    while True:
        first = _token(tokens, position)
        if first == "(":
            is_negated = _token(tokens, position + 1) == "not"
            brackets.append(("not" if is_negated else "left", 0))
            position += 1 + is_negated
            continue
        if first not in TABLES:
            raise ValueError(f"has {first!r} where a formula must begin: a variable, {', '.join(VARIABLES)}, or '('")
        table, position = _close(tokens, position + 1, TABLES[first], brackets)
        if not brackets:
            break
    if position < len(tokens):
        raise ValueError(f"has {tokens[position]!r} after the end of the formula")
    return table


def _close(tokens: Sequence[str], position: int, table: int, brackets: list[tuple[str, int]]) -> tuple[int, int]:
    """Close the brackets that end at a position, after a formula with a table, up to where a formula must begin."""
    while brackets:
        kind, left = brackets.pop()
        if kind == "not":
            table, position = ALWAYS & ~table, _expect(tokens, position, ")")
        elif kind == "left":
            operator = _token(tokens, _expect(tokens, position, "("))
            if operator not in ("and", "or"):
                raise ValueError(f"has {operator!r} where 'and' or 'or' must be")
            brackets.append((operator, table))
            return table, position + 2
        else:
            table = left & table if kind == "and" else left | table
            position = _expect(tokens, _expect(tokens, position, ")"), ")")
    return table, position


def _token(tokens: Sequence[str], index: int) -> str:
    if index >= len(tokens):
        raise ValueError("ends before the formula is complete")
    return tokens[index]


def _expect(tokens: Sequence[str], index: int, wanted: str) -> int:
    """Return the position after a required token."""
    if _token(tokens, index) != wanted:
        raise ValueError(f"has {tokens[index]!r} where {wanted!r} must be")
    return index + 1


def relation(first: int, second: int) -> str:
    """Return the relation of two formulas, one of `RELATIONS`, by their truth tables.

    Two formulas that are neither tautologies nor contradictions have exactly one of these relations: they are equal;
    one implies the other; they are never both true and never both false (^), never both true (|), or never both false
    (v); or none of these (#).

    Args:
        first, second: truth tables, see `truth_table`.
    """
    if first == second:
        return "="
    exclusive, exhaustive = first & second == 0, first | second == ALWAYS
    if exclusive:
        return "^" if exhaustive else "|"
    if exhaustive:
        return "v"
    if first & ~second == 0:
        return "<"
    return ">" if second & ~first == 0 else "#"
