"""Statistics of the numbers of runs. Imports no torch."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

CONFIDENCE = 0.95


def standard_deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation of a sample, None of a single value, NaN if a value is not finite."""
    if len(values) < 2:
        return None
    return stdev(values) if all(map(math.isfinite, values)) else math.nan


def mean_text(values: Sequence[float], digits: int, marks: str = "") -> str:
    """Return the mean and, of several values, the standard deviation, such as "12.3 ± 0.4"."""
    deviation = f" ± {standard_deviation(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{marks}{deviation}"


def exact_interval(solved: int, runs: int) -> tuple[float, float]:
    """Return the exact interval of Clopper and Pearson (1934) of a share, at 95 %: solved ≤ runs, runs ≥ 1."""
    tail = (1 - CONFIDENCE) / 2

    def at_least(count: int, share: float) -> float:
        return sum(math.comb(runs, k) * share**k * (1 - share) ** (runs - k) for k in range(count, runs + 1))

    def solve(is_low: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if is_low(middle) else (low, middle)
        return (low + high) / 2

    lower = 0.0 if solved == 0 else solve(lambda share: at_least(solved, share) < tail)
    upper = 1.0 if solved == runs else solve(lambda share: 1 - at_least(solved + 1, share) > tail)
    return lower, upper
