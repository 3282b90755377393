"""Slow cases, and large families of cases, from which `make test` runs a list.

A test, or some of its parameters, may have the marker `named(*patterns)`. Then `make test` runs the cases whose id, the
part of the name in brackets, matches one of the patterns, such as "rum*". With the marker `one_of(n)`, it runs about
one case in n, which its id determines, so that no list needs to name new cases. `make test-all` runs all cases; the
others have the marker `slow`.

With `-m "not slow"` slow cases are not made at all: making and deselecting them took a third of the collection.
"""

import zlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest


def leaves_out_slow(config: pytest.Config) -> bool:
    """Return whether the expression of `-m` excludes all slow cases."""
    return "not slow" in config.getoption("markexpr")


def is_slow(case: Any, markers: Iterable[pytest.Mark]) -> bool:
    """Return whether a case, the parameters of one call of a test with these markers, is slow."""
    return any(_leaves_out(mark, case.id) for mark in (*markers, *case.marks))


def _leaves_out(mark: pytest.Mark, case: str) -> bool:
    """Return whether a marker makes a case slow."""
    if mark.name == "named":
        return not any(fnmatchcase(case, pattern) for pattern in mark.args)
    return mark.name == "slow" or (mark.name == "one_of" and zlib.crc32(case.encode()) % mark.args[0] > 0)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    yield  # the plugins have made the cases
    if leaves_out_slow(metafunc.config):
        markers = list(metafunc.definition.iter_markers())
        metafunc._calls[:] = [case for case in metafunc._calls if not is_slow(case, markers)]


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    if leaves_out_slow(config):  # of a test without a case, pytest makes one without parameters
        items[:] = [item for item in items if hasattr(item, "callspec") or not is_parametrized(item)]
    for item in items:
        if hasattr(item, "callspec") and is_slow(item.callspec, item.iter_markers()):
            item.add_marker("slow")


def is_parametrized(item: Any) -> bool:
    """Return whether the test function has the marker `parametrize`."""
    return any(True for _ in item.iter_markers("parametrize"))
