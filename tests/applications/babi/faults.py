"""Small runs and inputs of bAbI for the suites of tests/faults."""

from pathlib import Path
from random import Random

import pytest

from gyral.applications.babi.generation import read_lines
from gyral.data.babi import release
from tests.applications.babi.small import SMALL_BABI
from tests.data.babi.conftest import RELEASE, packed, put, written
from tests.faults.inputs import MODEL, Input, train_on

STORY = "1 Mary moved to the bathroom.\n2 Where is Mary?\tbathroom\t1\n"


def small_run(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    sizes = ("task.batch_size=8", "task.eval_batch_size=64", "+trainer.limit_test_batches=2", "model.embedding_size=6")
    return (*(option for option in SMALL_BABI if "batch_size" not in option), *sizes, "model=gru", "optimizer=adam")


def files(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A release of small files, packed or unpacked."""
    patch.setattr(release, "SIZES", {"1k": 20, "10k": 60})
    patch.setattr(release, "TEST_SIZE", 10)
    patch.setattr(release, "PUBLISHED_DIGESTS", {1: {}})
    unpacked = folder / "babi" / RELEASE
    paths = [
        put(unpacked / "en" / "qa1_any_train.txt", written(1, 20)),
        put(unpacked / "en" / "qa1_any_test.txt", written(1, 10, seed=2)),
    ]
    options = {"data_dir": str(folder), "size": "1k"}
    if random.random() < 0.3:
        paths = [packed(unpacked, folder / "tasks.tar.gz")]
        options["path"] = str(paths[0])
    return train_on(("task=babi", *MODEL), options, paths, ("path" if "path" in options else "data_dir",))


def story(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A file with a story, of which `gyral generate` answers the questions."""
    path = folder / "given.txt"
    path.write_text(STORY)
    return Input([path], ("story",), lambda: list(read_lines(str(path))))


SMALL_RUNS = {"babi": small_run}
COMMANDS = (files,)
LOADERS = (story,)
COMMAND_LINES = (
    (*SMALL_BABI, "model=on_lstm", "model.cell.chunk_size=2", "scheduler=piecewise", "task.attention=true"),
)
