"""Slow cases, and large families of cases, from which `make test` runs a list.

A test, or some of its parameters, may have the marker `named(*patterns)`. Then `make test` runs the cases whose id, the
part of the name in brackets, matches one of the patterns, such as "rum*". `make test-all` runs all cases; the others
have the marker `slow`.

With `-m "not slow"` slow cases are not made at all: making and deselecting them took a third of the collection.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest


def leaves_out_slow(config: pytest.Config) -> bool:
    """Return whether the expression of `-m` excludes all slow cases."""
    return "not slow" in config.getoption("markexpr")


def is_slow(case: Any, named: pytest.Mark | None) -> bool:
    """Return whether a case, the parameters of one call of a test, is slow."""
    is_left_out = named is not None and not any(fnmatchcase(case.id, pattern) for pattern in named.args)
    return is_left_out or any(mark.name == "slow" for mark in case.marks)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    yield  # the plugins have made the cases
    if leaves_out_slow(metafunc.config):
        named, is_wholly = (metafunc.definition.get_closest_marker(name) for name in ("named", "slow"))
        metafunc._calls[:] = [case for case in metafunc._calls if not (is_wholly or is_slow(case, named))]


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    if leaves_out_slow(config):  # of a test without a case, pytest makes one without parameters
        items[:] = [item for item in items if hasattr(item, "callspec") or not is_parametrized(item)]
    for item in items:
        marker = item.get_closest_marker("named")
        if marker is not None and is_slow(item.callspec, marker):
            item.add_marker("slow")


def is_parametrized(item: Any) -> bool:
    """Return whether the test function has the marker `parametrize`."""
    return any(True for _ in item.iter_markers("parametrize"))
