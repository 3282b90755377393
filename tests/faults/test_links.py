"""Links in a run directory or a sweep of somebody else: no command writes through them to the user's files."""

import itertools
import os
import shutil
from pathlib import Path

import pytest

from gyral.core.files import copy_folder, remove
from gyral.runs.directory import check_links
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
LARGE = 2**20  # bytes of a file
# By their names: the places and targets of links in a run. {run} is the run directory, {users} a folder beside it.
WITHIN = {
    "to a file": (("best.ckpt", "checkpoints/best.ckpt"),),
    "to a file, absolute": (("best.ckpt", "{run}/checkpoints/best.ckpt"),),
    "to a large file": (("a", "checkpoints/large"), ("b", "{run}/checkpoints/large"), ("checkpoints/c", "large")),
    "to the run": (("deep", "."), ("checkpoints/deep", ".."), ("checkpoints/again", "{run}")),
    "to a folder": (("checkpoints/step_8", "../figures"), ("b", "checkpoints"), ("c", "{run}/checkpoints")),
    "to each other": (("a", "b"), ("b", "a")),
    "to itself": (("a", "a"), ("checkpoints/b", "{run}/checkpoints/b")),
    "to a link": (("a", "b"), ("b", "checkpoints"), ("checkpoints/c", "../b")),
    "to nothing": (("a", "nothing"), ("checkpoints/b", "{run}/nothing")),
    "to what is not copied": (("a", "train.log"), ("b", "wandb")),
}
OUTSIDE = {
    "to a file of the user": (("a", "{users}/kept"), ("checkpoints/b", "../../users/kept")),
    "to a folder of the user": (("a", "{users}"), ("checkpoints/step_8", "../../users")),
    "through a link": (("a", "b/kept"), ("b", "{users}")),
}
COPIES = list(itertools.product((*WITHIN, *OUTSIDE), ("a copy", "a copy over a copy", "a removal")))


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


@pytest.mark.parametrize("words", [("train", "resume=wandb"), ("evaluate", "run=wandb")])
def test_links_out_of_a_run_that_is_named_wandb_are_refused(
    words: tuple[str, ...], finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished / "run", tmp_path / "wandb")
    (tmp_path / "users").write_text("kept")
    (tmp_path / "wandb" / "DONE").unlink()
    (tmp_path / "wandb" / "train.log").unlink(missing_ok=True)
    (tmp_path / "wandb" / "train.log").symlink_to(tmp_path / "users")
    entry, *given = words
    ended = forks.run(*given, entry=entry, directory=tmp_path, limit=30)
    assert (tmp_path / "users").read_text() == "kept", ended
    assert ended.status == 1, ended
    assert "train.log is a link" in ended.error, ended


def link(run: Path, kind: str, users: Path) -> None:
    """Make the links of a kind in a run directory."""
    for place, target in {**WITHIN, **OUTSIDE}[kind]:
        (run / place).unlink(missing_ok=True)
        (run / place).symlink_to(target.format(run=run, users=users))


def entries(folder: Path) -> list[Path]:
    """Return all files, folders and links in a folder, without following a link."""
    return [Path(place, name) for place, folders, files in os.walk(folder) for name in (*folders, *files)]


def size(path: Path) -> int:
    return path.stat().st_size if path.is_file() and not path.is_symlink() else 0


@pytest.mark.attacks(sampled=4, whole=len(COPIES))
def test_copies_and_removals_follow_no_links(attack: Attack, tmp_path: Path) -> None:
    kind, what = COPIES[attack.number * 11 % len(COPIES)]
    run, users, copy = tmp_path / "run", tmp_path / "users", tmp_path / "copy"
    for folder in (run / "checkpoints", run / "figures", run / "wandb", users):
        folder.mkdir(parents=True)
    for file in (users / "kept", run / "checkpoints" / "best.ckpt", run / "train.log", run / "figures" / "a.png"):
        file.write_text(file.name)
    (run / "checkpoints" / "large").write_bytes(bytes(LARGE))
    link(run, kind, users)
    before = contents(users)
    if what == "a removal":
        for path in [*(path for path in entries(run) if path.is_symlink()), run]:
            remove(path)
        assert not run.exists()
    else:
        for _ in range(1 if what == "a copy" else 2):
            copy_folder(run, copy, without=("train.log", "wandb"))
        made = {path.relative_to(copy) for path in entries(copy)}
        expected = {path.relative_to(run) for path in entries(run)} - {Path("train.log"), Path("wandb")}
        links = {Path(place) for place, _ in {**WITHIN, **OUTSIDE}[kind]}
        assert made - links == expected - links
        assert made & links == (set() if kind in OUTSIDE else links)
        assert sum(map(size, entries(copy))) <= sum(map(size, entries(run)))
        for path in filter(Path.is_symlink, entries(copy)):
            assert not os.readlink(path).startswith("/"), path
            assert Path(os.path.realpath(path)).is_relative_to(copy), path
        check_links(copy, "run")
    assert contents(users) == before
    attack.record(what)


@pytest.mark.attacks(sampled=0, whole=len(WITHIN))
def test_a_longer_sweep_copies_no_file_twice(attack: Attack, tmp_path: Path) -> None:
    kind = list(WITHIN)[attack.number]
    here = tmp_path / "here"
    here.mkdir()
    words = ("-m", *RUN[:-2], "model=rnn", "seed=1", "callbacks.checkpoints.every=8", "hydra.sweep.dir=sweep")
    first = forks.run(*words, "trainer.max_steps=8", directory=here, limit=30)
    assert first.status == 0, first
    (run,) = (path.parent for path in (here / "sweep").rglob("DONE"))
    (run / "figures").mkdir(exist_ok=True)
    (run / "checkpoints" / "large").write_bytes(bytes(LARGE))
    link(run, kind, tmp_path / "users")
    second = forks.run(*words, "trainer.max_steps=16", directory=here, limit=30)
    assert second.status == 0, second
    assert "Continuing the run of 8 steps" in second.err, second
    (longer,) = (path.parent for path in (here / "sweep").rglob("DONE") if path.parent != run)
    assert [path.name for path in entries(longer) if size(path) >= LARGE] == ["large"]
    assert (run / "DONE").is_file()
    attack.record("longer")
