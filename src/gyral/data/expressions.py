"""Random expressions of modular arithmetic with brackets."""

from collections.abc import Iterator


def draw_expression(length: int, draws: Iterator[float], modulus: int, operators: int) -> tuple[list[int], int]:
    """Return an expression with brackets, and its value.

    For a length of 1, 2, 3 and 4 it is d, -d, (d) and (-d), with a uniform digit d. A longer one is (l∘r): the operator
    ∘ and the length of l, from 1 to length − 4, are uniform, and l and r are such expressions.

    Args:
        length: number of symbols.
        draws: random numbers, uniform in [0, 1), at least `length`.
        modulus: number of digits; the value is modulo this number.
        operators: number of operators: 2 for + and -, 3 for +, - and *.

    Returns:
        The symbols and the value. The symbols are the digits, the operators, and the opening and the closing bracket.
    """
    opening, closing = modulus + operators, modulus + operators + 1
    minus = modulus + 1
    if length < 5:
        digit = int(next(draws) * modulus)
        negative, enclosed = length in (2, 4), length in (3, 4)
        symbols = [*([opening] * enclosed), *([minus] * negative), digit, *([closing] * enclosed)]
        return symbols, (-digit if negative else digit) % modulus
    first = 1 + int(next(draws) * (length - 4))
    operator = int(next(draws) * operators)
    left, one = draw_expression(first, draws, modulus, operators)
    right, other = draw_expression(length - 3 - first, draws, modulus, operators)
    value = (one + other, one - other, one * other)[operator] % modulus
    return [opening, *left, modulus + operator, *right, closing], value
