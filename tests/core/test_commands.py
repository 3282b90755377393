"""How a command sets the environment of its process and of its child processes."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gyral import __main__, train
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


@pytest.mark.parametrize("main", [__main__.main, train.main], ids=["gyral", "src.train"])
def test_idle_threads_sleep_soon_unless_the_environment_says_when(
    main: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenMP reads the variable when PyTorch is loaded, after the start of a command."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands leave out the current directory
    for variables, spins in (({}, "10000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None), ({"GOMP_SPINCOUNT": "7"}, "7")):
        for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
            monkeypatch.delenv(variable, raising=False)
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setattr(sys, "argv", ["gyral", "--version"])
        main()
        assert os.environ.get("GOMP_SPINCOUNT") == spins
