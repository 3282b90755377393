"""Links in a run directory or a sweep of somebody else: no command writes through them to the user's files."""

import itertools
import shutil
from pathlib import Path

import pytest

from tests.faults import forks
from tests.faults.hostile import PRECIOUS
from tests.helpers.attacks import Attack
from tests.helpers.running import SMALL_COPY, invoke

RUN = (*SMALL_COPY, "model=rnn", "trainer.max_steps=8", "hydra.run.dir=run")
FILES = (
    *("config.yaml", "overrides.yaml", "provenance.json", "measures.json", "metrics.csv", "train.log", ".lock"),
    *("DONE", "FAILED", "examples.txt", "loss.png", "changes.diff", "figures/loss_line.png"),
    *("checkpoints/last.ckpt", "checkpoints/best.ckpt", "checkpoints/previous.ckpt"),
)
TEMPORARY = tuple(f"{name}.tmp" for name in FILES if name not in (".lock", "train.log"))
FOLDERS = ("checkpoints", "figures", "wandb", "tensorboard", "deep/er")
PLACES = (*FILES, *TEMPORARY, *FOLDERS)
COMMANDS: dict[str, tuple[str, ...]] = {
    "resume": ("train", "resume=run"),
    "the same directory": ("train", *RUN),
    "evaluate": ("evaluate", "run=run"),
    "figure": ("report", "figure=loss_line", "run=run"),
}
CASES = list(itertools.product(PLACES, COMMANDS))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a run that is DONE."""
    directory = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        outcome = invoke(*RUN, plot=True)  # here: the forks find what it has imported and composed
    assert outcome.status == 0, outcome.err
    return directory


def plant(run: Path, name: str, users: Path) -> None:
    """Replace a file or folder of a run by a link to the same file or folder of the user."""
    place, target = run / name, users / name.replace("/", "-")
    if name in FOLDERS:
        target.mkdir()
        (target / PRECIOUS).write_text(PRECIOUS)
        if place.is_dir():
            for file in place.iterdir():
                shutil.copy(file, target)
            shutil.rmtree(place)
    elif place.is_file():
        shutil.move(place, target)
    else:
        target.write_text(PRECIOUS)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.attacks(sampled=1, whole=len(CASES))
def test_no_link_leads_a_command_to_other_files(attack: Attack, finished: Path, tmp_path: Path) -> None:
    name, command = CASES[attack.number * 37 % len(CASES)]
    shutil.copytree(finished, tmp_path / "here")
    users = tmp_path / "users"
    users.mkdir()
    run = tmp_path / "here" / "run"
    if command in ("resume", "the same directory"):
        (run / "DONE").unlink()  # its test is missing
    plant(run, name, users)
    before = contents(users)
    entry, *words = COMMANDS[command]
    ended = forks.run(*words, entry=entry, directory=tmp_path / "here", limit=30)
    where = f"{name}, {command}: {ended}"
    assert contents(users) == before, where
    assert ended.status == 1, where
    assert name.partition("/")[0] in ended.error, where
    attack.record("refused")


@pytest.mark.parametrize("name", ["multirun.yaml", "copy/rnn/seed=1", "copy", "sweep.yaml.tmp"])
def test_no_link_leads_a_sweep_to_other_files(name: str, tmp_path: Path) -> None:
    place = tmp_path / "here" / "sweep" / name
    place.parent.mkdir(parents=True)
    users = tmp_path / "users"
    users.mkdir()
    place.symlink_to(users)
    words = ("-m", *SMALL_COPY, "model=rnn", "seed=1", "hydra.sweep.dir=sweep")
    ended = forks.run(*words, directory=tmp_path / "here", limit=30)
    assert (ended.status, list(users.iterdir())) == (1, []), ended
    assert "hydra.sweep.dir=sweep" in ended.error, ended


def test_links_within_a_run_directory_and_of_wandb_are_allowed(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    (tmp_path / "run" / "best.ckpt").symlink_to("checkpoints/best.ckpt")
    (tmp_path / "run" / "wandb").mkdir()
    (tmp_path / "run" / "wandb" / "debug.log").symlink_to(tmp_path / "log")  # W&B makes such links
    ended = forks.run("run=run", entry="evaluate", directory=tmp_path, limit=30)
    assert ended.status == 0, ended
