"""Samples of large families of cases.

A parametrized test with the marker `sampled(count)` runs so many of its cases in `make test`, spread evenly over all of
them, and all of them in `make test-all`: the others are slow.
"""

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
        chosen = {index * len(cases) // count for index in range(count)}
        for index, item in enumerate(cases):
            if index not in chosen:
                item.add_marker("slow")
