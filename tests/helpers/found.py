"""Lower bounds of lists that tests find by a pattern: modules, files, subclasses, choices of a group."""

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def at_least(count: int, found: Iterable[T]) -> list[T]:
    """Return what was found as a list; a test of nothing must not pass.

    Raises:
        AssertionError: There are fewer than `count`.
    """
    listed = list(found)
    assert len(listed) >= count, f"found {len(listed)}, expected at least {count}: {listed[:10]}"
    return listed
