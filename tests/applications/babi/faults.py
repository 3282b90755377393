"""Small runs and inputs of bAbI for the suites of tests/faults."""

from pathlib import Path
from random import Random

import pytest

from gyral.core.inputs import read_lines
from tests.applications.babi.small import SMALL_BABI
from tests.data.babi.conftest import packed, small_release
from tests.faults.inputs import MODEL, Input, train_on

STORY = "1 Mary moved to the bathroom.\n2 Where is Mary?\tbathroom\t1\n"


def small_run(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    sizes = ("task.batch_size=8", "task.eval_batch_size=64", "+trainer.limit_test_batches=2", "model.embedding_size=6")
    return (*(option for option in SMALL_BABI if "batch_size" not in option), *sizes, "model=gru", "optimizer=adam")


def unpacked(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    options, paths = small_release(folder, patch)
    return train_on(("task=babi", *MODEL), options, paths, ("data_dir",))


def archive(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    options, paths = small_release(folder, patch)
    path = packed(paths[0].parents[1], folder / "tasks.tar.gz")
    return train_on(("task=babi", *MODEL), {**options, "path": str(path)}, [path], ("path",))


def own_files(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """Files of the user's, with answers and letters that the release does not have."""
    paths = [folder / "historias.txt", folder / "preguntas.txt"]
    for path in paths:
        path.write_text(STORY.replace("Mary", "Iñaki").replace("bathroom", "baño") * 20, encoding="utf-8")
    return train_on(("task=babi", *MODEL), {"files": list(map(str, paths))}, paths, ("files",))


def story(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A file with a story, of which `gyral generate` answers the questions."""
    path = folder / "given.txt"
    path.write_text(STORY)
    return Input([path], ("story",), lambda: list(read_lines("story", str(path))))


SMALL_RUNS = {"babi": small_run}
LOADERS = {"babi.data_dir": unpacked, "babi.path": archive, "babi.files": own_files, "gyral generate story": story}
COMMAND_LINES = (
    (*SMALL_BABI, "model=on_lstm", "model.cell.chunk_size=2", "scheduler=piecewise", "task.attention=true"),
)
