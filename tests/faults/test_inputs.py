"""Damaged inputs: each is used, or refused in one line that names the option and the file; none is waited for."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gyral.config.errors import describe
from gyral.core.errors import UserError
from tests.faults import forks
from tests.faults.damages import damage
from tests.faults.inputs import Input
from tests.faults.loaders import COMMANDS, LOADERS
from tests.helpers.attacks import Attack

LIMIT = 10  # seconds


@contextmanager
def no_hang() -> Iterator[None]:
    """Fail if the context takes longer than the limit."""

    def fail(*_: Any) -> None:
        raise AssertionError(f"took over {LIMIT} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_message(message: str, given: Input, damaged: Path) -> None:
    """Check that the message of an error is one line that names one of the options and the damaged file."""
    assert "\n" not in message
    assert len(message) < 2000
    assert not given.options or any(f"{option}=" in message for option in given.options), message
    pattern = f"{damaged.name.partition('_')[0]}_*"  # of a missing file
    assert damaged.name in message or pattern in message, message


@pytest.mark.attacks(sampled=11, whole=330)
@pytest.mark.filterwarnings("default")  # as for a user
def test_damaged_inputs(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = LOADERS[attack.number % len(LOADERS)]
    given = make(tmp_path, attack.random, monkeypatch)
    path = attack.random.choice(given.files)
    way = damage(path, attack.random, only_contents=given.is_remote)
    found = message = None
    try:
        with no_hang():
            found = given.read()
    except (UserError, OSError) as error:
        message = describe(error)
    if given.expected is not None:
        assert (found, message) == (given.expected, None), way
        attack.record("made again")
    elif message is None:
        attack.record("used")
    else:
        check_message(message, given, path)
        attack.record("refused")


@pytest.mark.attacks(sampled=1, whole=30)
@pytest.mark.filterwarnings("default")
def test_training_on_damaged_inputs(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same by the command `gyral train`, from the command line to the end of the run."""
    given = COMMANDS[attack.number % len(COMMANDS)](tmp_path, attack.random, monkeypatch)
    path = attack.random.choice(given.files)
    way = damage(path, attack.random)
    ended = forks.run(*given.words, f"paths.data_dir={tmp_path}", directory=tmp_path, limit=6 * LIMIT)
    assert ended.status in (0, 1), (way, ended)
    assert "Traceback" not in ended.err + ended.out, (way, ended)
    assert bool(ended.error) == bool(ended.status), (way, ended)
    if ended.status:
        check_message(ended.error, given, path)
    attack.record("refused" if ended.status else "trained")
