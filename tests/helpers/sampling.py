"""Samples of large families of cases.

Of the cases of a test with the marker `sampled(count)`, on the test or on some of its parameters, `make test` runs so
many, and `make test-all` all: the others are slow. The choice is by a checksum of the names of the cases. An even step
through a product of parameters would meet the same values again and again.
"""

import zlib
from collections import defaultdict

import pytest


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    families: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            families[item.nodeid.partition("[")[0]].append(item)
    for cases in families.values():
        marker = cases[0].get_closest_marker("sampled")
        assert marker is not None
        (count,) = marker.args
        cases.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in cases[count:]:
            item.add_marker("slow")
