"""Large families of cases, from which `make test` runs a list.

A test, or some of its parameters, may have the marker `named(*patterns)`. Then `make test` runs the cases whose id, the
part of the name in brackets, matches one of the patterns, such as "rum*". `make test-all` runs all cases; the others
have the marker `slow`.
"""

from fnmatch import fnmatchcase
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by markers
def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        marker = item.get_closest_marker("named")
        if marker is not None and not any(fnmatchcase(item.callspec.id, pattern) for pattern in marker.args):
            item.add_marker("slow")
