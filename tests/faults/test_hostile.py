"""Run directories of somebody else: no command executes what their files name, and each is refused in one line."""

import itertools
import json
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import gyral
from gyral.core.errors import UserError
from gyral.runs.directory import load_run, resolve
from gyral.training.build import build_task
from tests.faults import forks
from tests.faults.hostile import ATTACKS, CANARY, MODULE, PRECIOUS, evaluated
from tests.helpers.attacks import Attack
from tests.helpers.running import SMALL_TEXT, compose_config

COMMANDS = {
    "train": ("train", "resume=run"),
    "evaluate": ("evaluate", "run=run"),
    "generate": ("generate", "run=run", "prompt=a", "length=1"),
    "predict": ("predict", "run=run", "data=run/config.yaml"),
    "figure": ("report", "figure=loss_line", "run=run"),
    "table": ("report", "sweep=."),
    "load": (),
}
CASES = list(itertools.product(ATTACKS, COMMANDS))
# What no command does with a run. It asks git and nvidia-smi for versions, and may compile a kernel.
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn", "webbrowser.open", "socket.connect")
PROGRAMS = ("git", "nvidia-smi", "c++", "g++", "clang++")


@pytest.fixture(scope="session")
def configuration() -> str:
    """The configuration of a run of a second, as it is saved."""
    config = compose_config(*SMALL_TEXT, "model=gru", "trainer.max_steps=1", "trainer.log_every_n_steps=1")
    return OmegaConf.to_yaml(resolve(config))


@pytest.fixture
def directory(configuration: str, tmp_path: Path) -> Path:
    """A working directory with a run that was stopped before its first checkpoint, and with files of an attacker."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(configuration)
    (run / "overrides.yaml").write_text("- seed=1\n")
    (run / "provenance.json").write_text(json.dumps({"id": "a", "command": [], "git_commit": None, "packages": {}}))
    (tmp_path / "canary.py").write_text(MODULE)
    (tmp_path / "hubconf.py").write_text(MODULE)
    (tmp_path / "conf").mkdir()  # modules of this directory can be imported
    (tmp_path / PRECIOUS).write_text(PRECIOUS)
    for name in ("canary.pt", "canary.npy"):
        (tmp_path / name).write_bytes(pickle.dumps(evaluated()))
    return tmp_path


def watch(executed: Path) -> None:
    """Write to a file what this process does that no command does. An audit hook stays until the process ends."""

    def hook(event: str, arguments: Any) -> None:
        foreign = event == "subprocess.Popen" and Path(str(arguments[0])).name not in PROGRAMS
        if event in FORBIDDEN or foreign or (event == "import" and arguments[0] == "canary"):
            with executed.open("a", encoding="utf-8") as file:
                file.write(f"{event} {arguments}\n")

    sys.addaudithook(hook)


def load(run: Path) -> None:
    """Load a run from Python; an error of the user ends the process as a command does."""
    try:
        gyral.load(run)
    except UserError as error:
        sys.exit(f"error: {error}")


def use(command: str) -> None:
    """Use the run in the working directory by one of `COMMANDS`."""
    if command == "load":
        return load(Path("run"))
    entry, *words = COMMANDS[command]
    sys.argv = [f"gyral/{entry}.py", *words]
    forks.ENTRIES[entry]()


@pytest.mark.attacks(sampled=1, whole=len(CASES))
def test_no_file_of_a_run_directory_is_executed(attack: Attack, directory: Path) -> None:
    order = random.Random(f"{attack.seed} order").sample(CASES, len(CASES))
    name, command = order[attack.number]
    ATTACKS[name](directory / "run")
    made = {path.name for path in directory.iterdir()}
    executed = directory / "executed"

    def call() -> None:
        watch(executed)
        sys.path.append(str(directory))
        use(command)

    ended = forks.fork(call, directory, limit=10)
    where = f"{name}, {command}: {ended}"
    assert not executed.exists(), f"{executed.read_text()} {where}"
    assert not {path.name for path in directory.iterdir()} - made - {"figures", "outputs"}, where
    assert not (directory / CANARY).exists(), where
    assert (directory / PRECIOUS).read_text() == PRECIOUS, where
    assert not list(directory.rglob("*.pdf")), where  # no figure is drawn
    assert "Traceback" not in ended.out + ended.err, where
    if command == "table":  # a table shows what it can read, and says what it cannot
        attack.record("shown" if ended.status == 0 else "refused")
        assert ended.status == 0 or ended.error, where
    elif ended.status == 0:  # what the attack has changed is not read: it trained from the start
        attack.record("not read")
        assert command == "train", where
        assert "checkpoint" in name or "best" in name or not name.startswith("a tag in the config"), where
    else:
        attack.record("refused")
        assert ended.status == 1, where
        assert "run" in ended.error.split(": ")[0], where
        assert "HYDRA_FULL_ERROR" not in ended.error, where


def test_the_attacks_work_where_nothing_is_checked(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary tells an execution: without the check, the first attacks make it."""
    monkeypatch.setattr("gyral.runs.directory.check_names", lambda *_: None)
    ATTACKS["a module as a cell"](directory / "run")

    def call() -> None:
        sys.path.append(str(directory))
        build_task(load_run(Path("run")).config)

    forks.fork(call, directory)
    assert (directory / CANARY).exists()
