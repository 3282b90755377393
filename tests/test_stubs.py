"""A bare checkout: `python -m src.<command>` without an installation, and the targets of the Makefile.

tests/test_imports.py runs `src.train`.
"""

import subprocess

import pytest

from tests.helpers.running import ROOT, spawn


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_other_commands_start(command: str) -> None:
    printed = spawn("-m", f"src.{command}", "--help")
    assert printed.status == 0, printed.err
    assert f"python -m src.{command}" in printed.out


def test_make_alone_prints_its_targets() -> None:
    printed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("install", "train", "test", "lint", "bench", "docs", "data"):
        assert f"make {target}" in printed


@pytest.mark.parametrize(
    ("target", "program"), [("train", "src.train"), ("test", "pytest"), ("data", "gyral"), ("docs", "mkdocs")]
)
def test_targets_install_first(target: str, program: str) -> None:
    command = ["make", target, "--dry-run", "--always-make"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.index("pip install") < printed.rindex(program)
