"""A plugin of pytest that runs every n-th test: GYRAL_TEST_SHARE=1/4 the second of each four.

It prints the names of all tests, from which `gpu_tests` knows those that a time limit has cut.
"""

import os
from typing import Any

COLLECTED = "collected: "  # begins the line of a test


def pytest_collection_modifyitems(session: Any, items: list[Any]) -> None:
    """Print the names of all tests, and leave the share of this process."""
    session.config.get_terminal_writer().write("".join(f"\n{COLLECTED}{item.nodeid}" for item in items) + "\n")
    index, count = map(int, os.environ["GYRAL_TEST_SHARE"].split("/"))
    items[:] = items[index::count]
