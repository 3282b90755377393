"""Generated text on a terminal and in a file."""

import sys

import pytest

from gyral.generation.output import Styled, write

PIECES = ("a\x1b[2J\t", Styled("\x1b[1mb\x1b[0m"), "\x9b\n")


@pytest.mark.parametrize(
    ("is_terminal", "shown"),
    [(True, "a\\x1b[2J\t\x1b[1mb\x1b[0m\\x9b\n"), (False, "a\x1b[2J\t\x1b[1mb\x1b[0m\x9b\n")],
)
def test_a_terminal_gets_no_control_characters_of_others(
    is_terminal: bool, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    write(PIECES)
    assert capsys.readouterr().out == shown
