"""A run on pairs of sentences that the tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gyral.applications.translation.task import TranslationTask
from gyral.runs.directory import load_run
from gyral.training import build
from tests.applications.translation.small import SHORTER
from tests.helpers.running import train


@pytest.fixture(scope="session")
def translation_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run on the pairs of pairs.tsv."""
    return train(tmp_path_factory.mktemp("runs") / "run", *SHORTER)


@pytest.fixture(scope="session")
def loaded(translation_run: Path) -> TranslationTask:
    """The trained task of the run."""
    return build.load_trained(load_run(translation_run), "best")[0]


@pytest.fixture
def trained(loaded: TranslationTask) -> Iterator[TranslationTask]:
    """The trained task of the run, whose search a test may change."""
    decoding = loaded.decoding
    yield loaded
    loaded.decoding = decoding
