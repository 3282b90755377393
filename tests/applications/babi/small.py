"""Small runs on bAbI, and its data for the suites of all tasks: see tests/helpers/slices.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gyral.data.babi import release
from tests.helpers.running import SMALL

SMALL_BABI = (
    *(option for option in SMALL if option.split("=")[0] not in ("task.train_size", "task.val_size", "task.test_size")),
    "task=babi",
    "task.generated=true",
    "task.size=1k",
)
SHORT = {"task.generated": "true", "task.size": "1k"}  # overrides for the commands of the documentation
OF_EVERY_CELL = ("babi",)
OWN = str(Path(__file__).with_name("own_questions.txt"))
ALTERNATIVES: dict[str, list[Any]] = {
    "qa": [2, "all"],
    "size": ["10k"],
    "attention": [True, "rotational"],
    "edges": ["entities"],
    "files": [[OWN, OWN]],
}
# options of a release, which do not change generated stories
NO_EFFECT = ("generated", "path", "data_dir", "validation", "stand_in")


@contextmanager
def few_stories() -> Iterator[None]:
    """Generate a tenth of the stories."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "SIZES", {"1k": 100, "10k": 1000})
        patch.setattr(release, "TEST_SIZE", 100)
        yield
