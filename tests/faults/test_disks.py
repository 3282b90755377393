"""Disks that are full: one line names the file, nothing is half-written, and the same command continues later."""

import sys
from pathlib import Path

import pytest

from gyral import train as train_command
from gyral.figures import loss_curve as loss_curve  # imported before the forks
from gyral.runs import provenance
from tests.faults.disks import limit_files, mounted, resize
from tests.faults.forks import Ended, fork, run
from tests.helpers.attacks import Attack
from tests.helpers.composing import each_once
from tests.helpers.running import SMALL_COPY, assert_same_run, train

SPACE = 2**26  # bytes: enough
CHECKPOINT = 26_000  # bytes of a checkpoint of this run, about
COMMAND = (*SMALL_COPY, "model=gru", "trainer.max_steps=9")
LIMIT = 120.0  # seconds; a run takes one, or several if the machine is busy


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run of the command with a disk that is large enough."""
    return train(tmp_path_factory.mktemp("undisturbed") / "run", *COMMAND)


def run_with_limit(size: int, directory: Path) -> Ended:
    """Run the command in a process whose files cannot become larger."""

    def call() -> None:
        limit_files(size)
        sys.argv = ["gyral/train.py", *COMMAND, f"hydra.run.dir={directory}/run"]
        with each_once():
            train_command.main()

    return fork(call, directory, LIMIT)


@pytest.mark.attacks(sampled=1, whole=40)
def test_a_run_on_a_full_disk_names_the_file_and_continues_when_there_is_space(
    attack: Attack, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_ask", lambda *_: "")  # the changes of the code have any size
    disk = tmp_path / "disk"
    command = (*COMMAND, f"hydra.run.dir={disk}/run")
    with mounted(disk, attack.random.randrange(4096, 8 * CHECKPOINT, 4096)) as is_mounted:
        if is_mounted and attack.random.random() < 0.7:
            first = run(*command, directory=disk, limit=LIMIT)
        else:
            if is_mounted:
                resize(disk, SPACE)
            first = run_with_limit(attack.random.choice([*range(0, 7000, 100), CHECKPOINT, CHECKPOINT + 1000]), disk)
        assert "Traceback" not in first.err
        if first.status:
            assert first.status == 1, first.err
            assert first.error.startswith(f"{disk}/run/"), first.err
        if is_mounted:
            resize(disk, SPACE)
        again = run(*command, directory=disk, limit=LIMIT)
        assert again.status == 0, again.err
        assert_same_run(undisturbed, disk / "run")
        if "Examples: " not in first.err:  # an example that could not be written does not stop a run
            assert (disk / "run" / "examples.txt").read_bytes() == (undisturbed / "examples.txt").read_bytes()
        assert not [*(disk / "run").rglob("*.tmp")]
    attack.record("stopped with a line, then bit-equal" if first.status else "had space enough")
