"""Damaged inputs: each is used, or refused in one line that names the option and the file; none is waited for."""

import itertools
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gyral.config.errors import describe
from gyral.core.errors import UserError
from tests.faults import forks
from tests.faults.damages import CONTENTS, OTHERS, damage, damage_as
from tests.faults.inputs import Input
from tests.faults.loaders import LOADERS, options_of_files
from tests.helpers.attacks import Attack
from tests.helpers.found import at_least
from tests.helpers.running import choices

LIMIT = 10  # seconds of computation
PATIENCE = 6 * LIMIT  # seconds, while other processes run
CASES = list(itertools.product(LOADERS, (*CONTENTS, *OTHERS)))
Random(int(os.environ.get("SEED", "0"))).shuffle(CASES)  # so that those that are sampled are of all kinds
OF_TASKS = [name for name in LOADERS if name.partition(".")[0] in choices("task")]


@contextmanager
def no_hang() -> Iterator[None]:
    """Fail if the context takes longer than the limit."""

    def fail(*_: Any) -> None:
        raise AssertionError(f"computed for over {LIMIT} seconds, or waited")

    before = [signal.signal(number, fail) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


def check_message(message: str, given: Input, damaged: Path) -> None:
    """Check that the message of an error is one line that names one of the options and the damaged file."""
    assert message.replace("\t", "").isprintable(), message
    assert len(message) < 2000
    assert not given.options or any(f"{option}=" in message for option in given.options), message
    pattern = f"{damaged.name.partition('_')[0]}_*"  # of a missing file
    named = (damaged.name.partition(".")[0], pattern, *((damaged.parent.name,) if given.names_folder else ()))
    assert any(name in message for name in named), message


def test_every_option_of_a_file_has_inputs() -> None:
    assert {*at_least(40, options_of_files())} <= {name.partition(" ")[0] for name in LOADERS}


# those that `make test` reads: the forms of files that no other test reads by building a task, and some others
READ = (
    *("text_file.*", "ptb_char.*", "sequences.data*", "cache of *", "gyral *", "babi.path", "group.*"),
    *("cloze.path*", "cloze.data_dir", "scenes.clevr questions", "hypernyms.hierarchy*"),
    "summarization_jsonl.corpus.val",
)


@pytest.mark.named(*READ)
@pytest.mark.parametrize("name", [name for name in at_least(60, LOADERS) if not name.endswith(" wrong")])
@pytest.mark.filterwarnings("default")
def test_inputs_without_damage_are_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "user's cache"))
    LOADERS[name](tmp_path, Random(name), monkeypatch).read()


@pytest.mark.attacks(sampled=12, whole=len(CASES))
@pytest.mark.filterwarnings("default")  # as for a user
def test_damaged_inputs(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name, way = CASES[attack.number]
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "user's cache"))
    given = LOADERS[name](tmp_path, attack.random, monkeypatch)
    path = attack.random.choice(given.files)
    if given.is_remote and way in OTHERS:
        way = attack.random.choice(list(CONTENTS))
    damage_as(way, path, attack.random)
    found = message = None
    try:
        with no_hang(), caplog.at_level(logging.WARNING):
            found = given.read()
    except (UserError, OSError) as error:
        message = describe(error)
    if given.expected is not None:
        assert (found, message) == (given.expected, None), (name, way)
        attack.record("made again")
    elif message is None:
        attack.record("used")
    else:
        check_message(message, given, path)
        attack.record("refused")


@pytest.mark.attacks(sampled=1, whole=60)
@pytest.mark.filterwarnings("default")
def test_training_on_damaged_inputs(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same by the command `gyral train`, from the command line to the end of the run."""
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "user's cache"))
    given = LOADERS[OF_TASKS[attack.number % len(OF_TASKS)]](tmp_path, attack.random, monkeypatch)
    if not given.words:
        attack.record("a cache, which the other test reads")
        return
    path = attack.random.choice(given.files)
    way = damage(path, attack.random)
    ended = forks.run(*given.words, f"paths.data_dir={tmp_path}", directory=tmp_path, limit=6 * LIMIT)
    assert ended.status in (0, 1), (way, ended)
    assert "Traceback" not in ended.err + ended.out, (way, ended)
    assert "\x1b" not in ended.err + ended.out, (way, ended)
    assert bool(ended.error) == bool(ended.status), (way, ended)
    if ended.status:
        check_message(ended.error, given, path)
    attack.record("refused" if ended.status else "trained")
