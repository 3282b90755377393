"""Evaluates programs that print one integer, without executing them.

A program is a sequence of statements with semicolons between them. The last statement prints:

    name=expression
    for name in range(expression):name+=expression       or name-=expression
    print(expression)

Expressions have integers, names, +, -, *, parentheses, and conditionals (expression if expression < expression else
expression). Unlike in Python, a loop may follow a semicolon, and its body is one statement.
"""

import ast
import operator
import re
import warnings
from collections.abc import Callable

from gyral.core.errors import UserError

LONGEST = 1000  # symbols of a program
PASSES = 1000  # passes of a loop
LARGEST = 10**50  # largest magnitude of a number
ASSIGNMENT = re.compile(r"([a-z]\w*)=([^=].*)", re.DOTALL)
LOOP = re.compile(r"for ([a-z]\w*) in range\((.*)\):([a-z]\w*)([+-])=(.*)", re.DOTALL)
PRINT = re.compile(r"print\((.*)\)", re.DOTALL)
OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}


class ProgramError(UserError):
    """A text is not a valid program. The message is the reason, such as "'x' has no value"."""


def evaluate_program(text: str) -> int:
    """Return the integer that a program prints.

    Raises:
        ProgramError: the text is not a program of this form, is too long, or has too large numbers.
    """
    if len(text) > LONGEST:
        raise ProgramError(f"has {len(text)} symbols, and must have at most {LONGEST}")
    *statements, last = text.split(";")
    values: dict[str, int] = {}
    for statement in statements:
        _execute(statement, values)
    printed = PRINT.fullmatch(last)
    if printed is None:
        raise ProgramError("must end with print(…)")
    return _evaluate(printed[1], values)


def _execute(statement: str, values: dict[str, int]) -> None:
    """Execute an assignment or a loop, and update the values of the variables."""
    if loop := LOOP.fullmatch(statement):
        counter, passes, variable, sign, added = loop.groups()
        count = _evaluate(passes, values)
        if count > PASSES:
            raise ProgramError(f"range({count}) must be at most {PASSES}")
        for index in range(count):
            values[counter] = index
            step = _evaluate(added, values)
            values[variable] = _evaluate(variable, values) + (step if sign == "+" else -step)
    elif assignment := ASSIGNMENT.fullmatch(statement):
        values[assignment[1]] = _evaluate(assignment[2], values)
    else:
        raise ProgramError(f"{statement!r} is neither an assignment nor a loop such as for x in range(3):a+=2")


def _evaluate(expression: str, values: dict[str, int]) -> int:
    """Return the value of an expression."""
    try:
        with warnings.catch_warnings(action="ignore"):  # such as of 1if
            tree = ast.parse(expression, mode="eval")
        return _value(tree.body, values)
    except ProgramError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ProgramError(f"{expression!r} is not an expression") from None


def _value(node: ast.AST, values: dict[str, int]) -> int:
    """Return the value of a node of an expression."""
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            value = number
        case ast.Name(id=name):
            if name not in values:
                raise ProgramError(f"{name!r} has no value")
            value = values[name]
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as sign, right=right):
            value = OPERATORS[type(sign)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = -_value(operand, values)
        case ast.IfExp(
            test=ast.Compare(left=left, ops=[ast.Lt() | ast.Gt() as order], comparators=[right]),
            body=body,
            orelse=otherwise,
        ):
            holds = OPERATORS[type(order)](_value(left, values), _value(right, values))
            value = _value(body if holds else otherwise, values)
        case _:
            raise ProgramError(
                f"{ast.unparse(node)!r} is not allowed; expressions have integers, names, +, -, * and conditionals"
            )
    if abs(value) > LARGEST:
        raise ProgramError("computes a number of more than 50 digits")
    return value
