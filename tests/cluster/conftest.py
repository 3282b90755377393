"""Tests on real engines: SLURM, Ray, databases, a stand-in of Weights & Biases. `make test-cluster` runs them.

An engine that is not installed is skipped with its name. What a test starts lies in a temporary folder, listens on
free ports of this machine, and is ended by its process id.
"""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.cluster)
