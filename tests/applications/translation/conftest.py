"""A run on pairs of sentences that the tests share."""

from pathlib import Path

import pytest

from tests.applications.translation.small import TRANSLATIONS
from tests.helpers.running import train


@pytest.fixture(scope="session")
def translation_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run on the pairs of pairs.tsv."""
    return train(tmp_path_factory.mktemp("runs") / "run", *TRANSLATIONS)
