"""Finite groups as multiplication tables, made from permutations."""

import itertools
import math
import re
from typing import NamedTuple

import numpy as np

from gyral.core.errors import OptionError

LARGEST = 720  # number of elements of a group
DEGREES = {"Z": (2, 120), "S": (3, 6), "A": (4, 6)}  # smallest and largest n of Z_n, S_n and A_n


class Group(NamedTuple):
    """A finite group with n elements; the first one is the identity.

    Attributes:
        elements: names of the elements: k for the k-th power of the generator of Z_n, the images of 1 … n for a
            permutation, such as 231 for 1 → 2, 2 → 3, 3 → 1, and both with a comma for elements of a product.
        table: (n, n) integers: the product of a row's and a column's element. The product pq of permutations maps i to
            p(q(i)).
        generators: elements that generate the group; see `make_group`.
    """

    elements: tuple[str, ...]
    table: np.ndarray
    generators: tuple[int, ...]


def make_group(name: str) -> Group:
    """Return a group by its name.

    The generators are 1 for Z_n; the transposition (1 2) and the cycle (1 2 … n) for S_n; the cycle (1 2 3) and
    (1 2 … n) if n is odd, else (2 3 … n), for A_n; and those of both factors for a product.

    Args:
        name: Z2 … Z120, S3 … S6, A4 … A6, or a product of them with at most 720 elements, such as A4xZ5.

    Raises:
        OptionError: there is no such group; the option is `group`.
    """
    factors = [re.fullmatch(r"([ZSA])([1-9][0-9]{0,2})", factor) for factor in str(name).split("x")]
    sizes = [(factor[1], int(factor[2])) for factor in factors if factor]
    if len(sizes) < len(factors) or not all(DEGREES[kind][0] <= n <= DEGREES[kind][1] for kind, n in sizes):
        groups = ", ".join(f"{kind}{low} … {kind}{high}" for kind, (low, high) in DEGREES.items())
        raise OptionError("group", name, f"must be one of {groups}, or a product such as A4xZ5")
    orders = [{"Z": n, "S": math.factorial(n), "A": math.factorial(n) // 2}[kind] for kind, n in sizes]
    if math.prod(orders) > LARGEST:
        raise OptionError("group", name, f"has {math.prod(orders)} elements; at most {LARGEST} are allowed")
    found, *others = (_factor(kind, n) for kind, n in sizes)
    for other in others:
        found = _product(found, other)
    return found


def _factor(kind: str, n: int) -> Group:
    """Return Z_n, S_n or A_n."""
    identity = tuple(range(n))
    cycle = (*identity[1:], 0)
    if kind == "Z":
        permutations = [tuple((i + k) % n for i in identity) for k in range(n)]
        names = [str(k) for k in range(n)]
        generators = [cycle]
    else:
        permutations = [each for each in itertools.permutations(identity) if kind == "S" or _is_even(each)]
        names = ["".join(str(i + 1) for i in each) for each in permutations]
        generators = [(1, 0, *identity[2:]), cycle]
        if kind == "A":
            generators = [(1, 2, 0, *identity[3:]), cycle if n % 2 else (0, *identity[2:], 1)]
    index = {each: place for place, each in enumerate(permutations)}
    images = np.array(permutations)
    table = np.array([[index[tuple(row)] for row in each[images].tolist()] for each in images])
    return Group(tuple(names), table, tuple(index[each] for each in generators))


def _product(first: Group, second: Group) -> Group:
    """Return the direct product of two groups, in lexicographic order."""
    count = len(second.elements)
    names = tuple(",".join(pair) for pair in itertools.product(first.elements, second.elements))
    table = first.table[:, None, :, None] * count + second.table[None, :, None, :]
    generators = (*(each * count for each in first.generators), *second.generators)
    return Group(names, table.reshape(len(names), len(names)), generators)


def _is_even(permutation: tuple[int, ...]) -> bool:
    return sum(a > b for a, b in itertools.combinations(permutation, 2)) % 2 == 0
