"""Checkpoints that are whole and have contents that no run writes: each is refused before the first step, in one line.

The line names the checkpoint. Commands that do not read a state do not refuse it.
"""

import itertools
import os
import random
import shutil
from pathlib import Path

import pytest

from gyral.runs.directory import BEST_CHECKPOINT, LAST_CHECKPOINT
from tests.faults import forks
from tests.faults.checkpoints import OF_ALL, OF_TRAINING, change_checkpoint
from tests.faults.test_hostile import load
from tests.helpers.attacks import Attack
from tests.helpers.running import SMALL_TEXT, train

COMMANDS = {
    "train": ("resume=run", "trainer.max_steps=8"),
    "evaluate": ("run=run", "checkpoint=last"),
    "generate": ("run=run", "checkpoint=last", "prompt=a", "length=1"),
    "predict": ("run=run", "checkpoint=last", "data=run/config.yaml"),
    "load": (),
}
CASES = [
    *((name, "train", LAST_CHECKPOINT) for name in OF_TRAINING),
    *((name, command, LAST_CHECKPOINT) for name, command in itertools.product(OF_ALL, COMMANDS) if command != "load"),
    *((name, "load", BEST_CHECKPOINT) for name in OF_ALL),
    *((name, "evaluate", LAST_CHECKPOINT) for name in list(OF_TRAINING)[::6]),
    *((name, "generate", LAST_CHECKPOINT) for name in list(OF_TRAINING)[::12]),
]
random.Random(int(os.environ.get("SEED", "0"))).shuffle(CASES)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps, whose learning rate is an integer and halves each step."""
    words = ("model=gru", "optimizer=adam", "scheduler=step", "trainer.max_steps=4", "trainer.val_check_interval=2")
    rates = ("optimizer.lr=1", "scheduler.step_size=1")
    return train(tmp_path_factory.mktemp("trained") / "run", *SMALL_TEXT, *words, *rates)


@pytest.mark.attacks(sampled=3, whole=len(CASES))
def test_contents_that_no_run_writes_are_refused(attack: Attack, trained: Path, tmp_path: Path) -> None:
    name, command, file = CASES[attack.number]
    run = shutil.copytree(trained, tmp_path / "run")
    change_checkpoint(run / file, {**OF_ALL, **OF_TRAINING}[name])
    before = set((run / "metrics.csv").read_text().splitlines())
    if command == "load":
        ended = forks.fork(lambda: load(Path("run")), tmp_path, limit=20)
    else:
        ended = forks.run(*COMMANDS[command], entry=command, directory=tmp_path, limit=20)
    where = f"{name}, {command}: {ended}"
    assert "Traceback" not in ended.out + ended.err, where
    assert "HYDRA_FULL_ERROR" not in ended.err, where
    assert set((run / "metrics.csv").read_text().splitlines()) <= before, where  # it did not train
    if name in OF_TRAINING and command != "train":
        assert ended.status == 0 or "ckpt" in ended.error, where
        attack.record("refused" if ended.status else "not read")
        return
    assert ended.status == 1, where
    assert Path(file).name in ended.error, where
    attack.record("refused")


def test_the_run_resumes_without_an_attack(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    change_checkpoint(run / LAST_CHECKPOINT, lambda content: None)
    ended = forks.run(*COMMANDS["train"], directory=tmp_path, limit=20)
    assert ended.status == 0, ended
