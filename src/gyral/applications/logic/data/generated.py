"""Generated pairs of formulas in the form of the published data, for machines without it."""

import random
from collections.abc import Callable

from gyral.applications.logic.data.formulas import ALWAYS, VARIABLES, relation, truth_table

USED_VARIABLES = 4  # largest number of variables of a pair, as in the published data
NEGATION = 0.4  # probability that an operator is a negation


def generate(operators: int, count: int, seed: str) -> list[tuple[str, str, str]]:
    """Return pairs of formulas with the relation between them, found by truth tables.

    No formula is a tautology or a contradiction.

    Args:
        operators: operators of the larger formula of each pair.
        count: number of pairs.
        seed: seed of the draws.

    Returns:
        (relation, first formula, second formula) for each pair.
    """
    uniform = random.Random(f"{seed} {operators}").random  # the only generator whose sequence Python guarantees
    pairs: list[tuple[str, str, str]] = []
    while len(pairs) < count:
        variables = [_choose(uniform, VARIABLES) for _ in range(USED_VARIABLES)]
        sizes = operators, int(uniform() * (operators + 1))
        first, second = (_draw(uniform, size, variables) for size in (sizes if uniform() < 0.5 else sizes[::-1]))
        tables = [truth_table(formula.split()) for formula in (first, second)]
        if not {0, ALWAYS} & {*tables}:
            pairs.append((relation(*tables), first, second))
    return pairs


def _draw(uniform: Callable[[], float], operators: int, variables: list[str]) -> str:
    """Return a random formula with a number of operators."""
    if operators == 0:
        return _choose(uniform, variables)
    if uniform() < NEGATION:
        return f"( not {_draw(uniform, operators - 1, variables)} )"
    left = int(uniform() * operators)
    first, second = (_draw(uniform, size, variables) for size in (left, operators - 1 - left))
    return f"( {first} ( {_choose(uniform, ('and', 'or'))} {second} ) )"


def _choose(uniform: Callable[[], float], items: tuple[str, ...] | list[str]) -> str:
    return items[int(uniform() * len(items))]
