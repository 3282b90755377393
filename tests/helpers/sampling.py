"""Large families of cases, of which `make test` runs those that a list names.

Of the cases of a test with the marker `named(*patterns)`, on the test or on some of its parameters, `make test` runs
those whose id, the part of the test's name in brackets, matches one of the patterns, such as "rum*". `make test-all`
runs all: the others are slow.
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
