"""Where the child processes of a command look for modules, programs and libraries."""

import os
import sys
from pathlib import Path

import pytest

from gyral.core.commands import PATHS, leave_out_current_directory


def test_child_processes_look_for_nothing_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty entry of these variables is the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    for variable in (*PATHS, "PATH"):
        monkeypatch.setenv(variable, ":/first::/second:")
    leave_out_current_directory()
    assert {os.environ[variable] for variable in (*PATHS, "PATH")} == {"/first:/second"}
    assert not {"", str(tmp_path)} & set(sys.path)
    assert os.environ["PYTHONSAFEPATH"] == "1"
