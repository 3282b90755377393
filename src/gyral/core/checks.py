"""Checks of option values. Each error is one line with the option, its value and the allowed values."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from gyral.core.errors import ChoiceError, OptionError


def check_integer(name: str, value: Any, minimum: int = 1, maximum: int | None = None) -> int:
    """Return `value` if it is an integer in [minimum, maximum], else raise `OptionError`."""
    highest = math.inf if maximum is None else maximum
    if isinstance(value, Integral) and not isinstance(value, bool) and minimum <= int(value) <= highest:
        return int(value)  # of NumPy's types, too
    allowed = f"an integer ≥ {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"
    raise OptionError(name, value, f"must be {allowed}")


def check_integers(name: str, value: Any, minimum: int = 1, count: int | None = None) -> list[int]:
    """Return `value` as a list if it holds increasing integers ≥ minimum, else raise `OptionError`.

    Args:
        name: name of the option.
        value: value of the option.
        minimum: smallest first integer.
        count: number of integers; 2 for a range, whose ends may be equal. None: any number.
    """
    kind = "increasing integers" if count is None else f"{count} integers in increasing order"
    error = OptionError(name, value, f"must be {kind} ≥ {minimum}, such as [{minimum + 1}, {minimum + 3}]")
    if isinstance(value, str) or not isinstance(value, Sequence) or (count is not None and len(value) != count):
        raise error
    found = list(value)
    for previous, each in zip([minimum, *found], found, strict=False):
        if isinstance(each, bool) or not isinstance(each, int) or each < previous:
            raise error
    if count is None and len(set(found)) < len(found):
        raise error
    return found


def check_real(
    name: str,
    value: Any,
    *,
    minimum: float = -math.inf,
    above: float = -math.inf,
    maximum: float = math.inf,
    below: float = math.inf,
) -> float:
    """Return `value` as a float if it is a finite number within the bounds, else raise `OptionError`."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and minimum <= value <= maximum and above < value < below:
        return float(value)
    bounds = [
        f"{sign} {bound:g}"
        for sign, bound in (("≥", minimum), (">", above), ("≤", maximum), ("<", below))
        if math.isfinite(bound)
    ]
    raise OptionError(name, value, " ".join(["must be a finite number", " and ".join(bounds)]).strip())


def check_boolean(name: str, value: Any) -> bool:
    """Return `value` if it is true or false, else raise `OptionError`."""
    if not isinstance(value, bool):
        raise OptionError(name, value, "must be true or false")
    return value


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`, else raise `ChoiceError`."""
    if value not in choices:
        raise ChoiceError(name, value, choices)
    return str(value)
