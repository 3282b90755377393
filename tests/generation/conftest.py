"""Trained runs on small texts and articles, shared by the tests of this folder."""

import functools
from pathlib import Path
from typing import Any

import pytest

from gyral.runs.directory import load_run
from gyral.training import build
from tests.helpers.running import Outcome, invoke

LINES = ["the cat sat on the mat .\n", 'a dog <barks> & "runs" .\n', "über naïve cafés – so !\n"]
TEXT = "".join(LINES[i % 3] for i in range(60))
SIZES = ("task=text_file", "task.batch_size=4", "task.window=16", "task.warm_up=8", "task.eval_batch_size=4")
RUN = (
    *SIZES,
    "model=gru",
    "model.cell.hidden_size=16",
    "optimizer=adam",
    "optimizer.lr=0.02",
    "trainer=cpu",
    "trainer.max_steps=20",
    "trainer.val_check_interval=20",
    "logger=none",
    "threads=1",
    "~callbacks.progress_bar",
)


class Trained:
    """A run of a few steps on TEXT, and the commands on it."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        self.text = folder / "text.txt"
        self.text.write_text(TEXT)
        self.directory = folder / "a run, x=1"  # which Hydra's grammar would take for a sweep
        place = (f"task.corpus.path={self.text}", f"paths.data_dir={folder}", f"hydra.run.dir='{self.directory}'")
        assert invoke(*RUN, *place, *overrides).status == 0
        self.run = load_run(self.directory)

    @functools.cached_property
    def task(self) -> Any:
        return build.load_trained(self.run, "best")[0]

    def generate(self, *arguments: str) -> Outcome:
        return invoke(f"run={self.directory}", *arguments, entry="generate")

    def write(self, *arguments: str) -> str:
        outcome = self.generate(*arguments)
        assert outcome.status == 0, outcome.err
        return outcome.out


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("char"))


@pytest.fixture(scope="session")
def of_words(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("word"), "task.corpus.level=word")


@pytest.fixture(scope="session")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("byte"), "task.corpus.level=byte")
