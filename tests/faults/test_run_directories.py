"""Damaged files of a run directory: every command ends well, or in one line that names the file or an option."""

import shutil
from pathlib import Path

import pytest

from gyral.runs.directory import FILES
from tests.faults import forks
from tests.faults.damages import CONTENTS, OTHERS
from tests.faults.test_configurations import ROOTS
from tests.faults.test_hostile import COMMANDS, use
from tests.helpers.attacks import Attack
from tests.helpers.running import SMALL_TEXT

STEPS = ("trainer.max_steps=6", "trainer.val_check_interval=3", "callbacks.checkpoints.every=3")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is DONE."""
    directory = tmp_path_factory.mktemp("finished")
    ended = forks.run(*SMALL_TEXT, *STEPS, "model=gru", "hydra.run.dir=run", directory=directory)
    assert ended.status == 0, ended
    return directory / "run"


@pytest.mark.attacks(sampled=0, whole=200)
def test_damaged_files_are_named(attack: Attack, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    name, kind = attack.random.choice(FILES), attack.random.choice([*CONTENTS, *OTHERS])
    command = attack.random.choice(list(COMMANDS))
    if command == "train" and name != "DONE":
        (run / "DONE").unlink()
    content = (run / name).read_bytes() if (run / name).is_file() else b""
    content = content or b"Traceback\nError: text\n"  # of a lock, or of a file that the run does not have
    (run / name).unlink(missing_ok=True)
    if kind in CONTENTS:
        (run / name).write_bytes(CONTENTS[kind](content, attack.random))
    else:
        OTHERS[kind](run / name)

    ended = forks.fork(lambda: use(command), tmp_path)
    where = f"{name}, {kind}, {command}: {ended}"
    assert "Traceback" not in ended.out + ended.err, where
    if ended.status == 0:
        attack.record("not needed")
        return
    assert ended.status == 1, where
    start = ended.error.partition(": ")[0].partition("=")[0]
    assert "HYDRA_FULL_ERROR" not in ended.error, where
    assert name in ended.error or start.partition(".")[0] in {*ROOTS, "run", "checkpoint"}, where
    attack.record("named")
