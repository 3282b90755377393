"""The release of bAbI, which the reading tasks read too, and a run on generated stories."""

from collections.abc import Iterator

import pytest

from gyral.runs.directory import Run, load_run
from tests.applications.babi.small import few_stories
from tests.applications.reading.small import SMALL_READING
from tests.data.babi.conftest import real as real
from tests.helpers.running import train


@pytest.fixture(autouse=True)
def small(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fewer generated stories, unless a network must learn from them or the release is read."""
    if "slow" in request.keywords or "real" in request.fixturenames:
        yield
        return
    with few_stories():
        yield


@pytest.fixture(scope="session")
def with_edges(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of a reader with edges."""
    options = ("task=babi_reading", "task.qa=2", "model=attention_sum", "cell@model.cell=mage_gru")
    sizes = ("model.cell.hidden_size=8", "model.cell.edge_size=2", "model.embedding_size=8")
    with few_stories():
        return load_run(train(tmp_path_factory.mktemp("runs") / "mage", *SMALL_READING, *options, *sizes))
