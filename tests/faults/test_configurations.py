"""Wrong command lines end in one line that names an option or a file: no traceback, no hang, no run directory."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from omegaconf import OmegaConf

from gyral.config.groups import groups
from tests.faults import forks
from tests.faults.command_lines import CommandLine, command_lines
from tests.helpers.attacks import Attack
from tests.helpers.running import CONF

COMMAND_LINES = 2  # of an attack
FORKED, SPAWNED = 500, 20  # attacks in forks of this process, and in processes that a user starts
LIMIT = 10.0  # seconds of computation
ROOTS = {*map(str, OmegaConf.load(CONF / "train.yaml")), *groups()}  # first parts of the keys of options


def names_option_or_file(error: str, line: CommandLine) -> bool:
    """Return whether an error names an option, as it is written on the command line, or a file."""
    start = error.partition(": ")[0]
    option = re.match(r"[~+'-]*(\w+)", start)
    words = [word.lstrip("+~-").partition("=")[0] for word in line.drawn]
    written = [part for word in words for part in (word, word.partition(".")[0]) if part]
    is_option = bool(option and option[1] in ROOTS) or any(part in error for part in written)
    return is_option or "/" in start or start in line.drawn


def examine(line: CommandLine, ended: forks.Ended, directory: Path) -> str:
    """Check how a program ended, and return the outcome."""
    where = f"{line.drawn} of gyral train {' '.join(line.words)}\n{ended}"
    assert "Traceback" not in ended.out + ended.err, where
    if ended.status == 0:
        return "accepted"
    is_training = any(directory.rglob("config.yaml"))
    if ended.status == forks.NEVER_ENDED:
        assert is_training, f"hung: {where}"
        return "accepted, and longer than its limit"
    assert ended.status == 1, where
    assert ended.error, where
    assert "HYDRA_FULL_ERROR" not in ended.error, where
    assert names_option_or_file(ended.error, line), where
    return "refused in training" if is_training else "refused"


def drawn(count: int, number: int) -> list[CommandLine]:
    """Return command lines that a random number determines."""
    lines: list[CommandLine] = []

    @seed(number)
    @settings(
        max_examples=count + 1,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(command_lines())
    def draw(line: CommandLine) -> None:
        lines.append(line)

    draw()
    return lines[1 : count + 1]  # the first is the simplest and always the same


@pytest.mark.attacks(sampled=1, whole=FORKED + SPAWNED)
def test_wrong_command_lines_end_in_one_line(attack: Attack, tmp_path: Path) -> None:
    is_forked = attack.number < FORKED
    for number, line in enumerate(drawn(COMMAND_LINES if is_forked else 1, attack.random.getrandbits(64))):
        directory = tmp_path / str(number)
        directory.mkdir()
        run = forks.run if is_forked else forks.spawn
        ended = run(*line.words, directory=directory, limit=LIMIT)
        attack.record(examine(line, ended, directory))
        attack.record("command lines")
