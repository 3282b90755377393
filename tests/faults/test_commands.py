"""Every command that `gyral --help` lists ends wrong words, closed streams and a removed directory in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from gyral.__main__ import COMMANDS
from gyral.core.streams import CLOSED
from tests.faults import forks
from tests.faults.commands import STATES, TRAIN, Line, shares
from tests.helpers.attacks import Attack
from tests.helpers.running import ENTRIES, SMALL_COPY, SMALL_TEXT, compose_config, train

ATTACKS = 300
LIMIT = 20.0  # seconds of computation


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run directory of a run that is done."""
    compose_config(*TRAIN)  # once, not in each fork
    return train(tmp_path_factory.mktemp("runs") / "run", *SMALL_TEXT, "model=lstm")


@pytest.fixture(autouse=True)
def without_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no command find a key of Weights & Biases."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def examine(line: Line, ended: forks.Ended, directory: Path) -> str:
    """Check how a command has ended and what it has left, and return the outcome."""
    where = f"{line.drawn} of gyral {line.command} {' '.join(line.words)}\n{ended}"
    named = {word.partition("=")[2] for word in line.drawn}  # a folder for records has any name
    left = sorted({path.relative_to(directory).parts[0] for path in directory.rglob("*")} - named)
    assert "Traceback" not in ended.out + ended.err, where
    assert "HYDRA_FULL_ERROR" not in ended.err, where
    assert ended.status in (0, 1), where
    is_sweep = any(directory.rglob("multirun.yaml"))  # which names the jobs that have failed, and can be repeated
    is_training = line.command == "train" and (is_sweep or any(directory.rglob("config.yaml")))
    assert is_training or not left, f"left {left}: {where}"
    if ended.status == 0:
        return "accepted"
    assert ended.error or is_sweep, where
    return "refused in training" if is_training else "refused"


def test_every_command_has_an_entry() -> None:
    assert set(ENTRIES) == set(COMMANDS)


@pytest.mark.attacks(sampled=1, whole=ATTACKS)
def test_every_command_refuses_wrong_words_in_one_line(attack: Attack, run: Path, tmp_path: Path) -> None:
    for number, line in enumerate(shares(attack.number, ATTACKS, run)):
        directory = tmp_path / str(number)
        directory.mkdir()
        ended = forks.run(*line.words, entry=line.command, directory=directory, limit=LIMIT)
        attack.record(examine(line, ended, directory))
        attack.record("command lines")


def in_state(state: str, *words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run `gyral <words>` in a process whose standard streams or directory are in a state."""
    command = ["sh", "-c", STATES[state], "sh", sys.executable, "-m", "gyral", *words]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)


CASES = [(state, command) for command in COMMANDS for state in STATES]


@pytest.mark.attacks(sampled=1, whole=len(CASES))
def test_streams_and_directories_that_are_gone_end_in_one_line(attack: Attack, tmp_path: Path) -> None:
    state, command = CASES[attack.number]
    ended = in_state(state, command, "--help", directory=tmp_path)
    assert not list(tmp_path.iterdir())
    statuses = {"closed standard input": 0, "closed standard error": 0, "output without a reader": CLOSED}
    assert ended.returncode == statuses.get(state, 1), ended
    assert len(ended.stderr.splitlines()) == (
        state in ("closed standard output", "full standard output", "removed directory")
    )
    assert not ended.stderr or ended.stderr.startswith(("error: standard output: ", "error: current directory: "))
    attack.record(state)


@pytest.mark.attacks(sampled=0, whole=3)
def test_a_run_is_whole_without_standard_input_and_error(attack: Attack, tmp_path: Path) -> None:
    state = ("closed standard input", "closed standard error", "output without a reader")[attack.number]
    ended = in_state(state, "train", *SMALL_COPY, f"hydra.run.dir={tmp_path}/run", directory=tmp_path)
    assert ended.returncode == (CLOSED if state == "output without a reader" else 0), ended
    assert (tmp_path / "run" / "DONE").is_file()
    assert "error" not in (tmp_path / "run" / "train.log").read_text()
    attack.record(state)
