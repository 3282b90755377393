"""Overrides and commands are printed as a user types them."""

import shlex
import sys

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from gyral.config.overrides import plain, program, typed


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("resume=outputs/copy/rum/2026-01-01_10-00-00-123456", "resume=outputs/copy/rum/2026-01-01_10-00-00-123456"),
        ("resume=outputs/sweep/seed=1,lr=2", "\"resume='outputs/sweep/seed=1,lr=2'\""),
        ("resume=my runs/it's", "\"resume='my runs/it\\'s'\""),
    ],
)
def test_a_command_that_is_shown_is_what_one_types(override: str, shown: str) -> None:
    if "\\" not in shown:
        assert typed([plain(override)]) == shown
    [word] = shlex.split(typed([plain(override)]))
    parsed = OverridesParser.create().parse_override(word)
    assert str(parsed.value()) == override.partition("=")[2]


@pytest.mark.parametrize(
    ("started", "printed"),
    [
        ("/checkout/src/train.py", "python -m src.report"),
        ("/environment/lib/gyral/train.py", "gyral report"),
        ("/environment/bin/gyral", "gyral report"),
    ],
)
def test_commands_are_printed_as_the_user_started_gyral(
    started: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [started, "model=rum"])
    assert typed(program("report")) == printed
