"""Every command prints Gyral's version."""

import sys
from importlib.metadata import PackageNotFoundError

import pytest

import gyral
from gyral import __main__ as program
from gyral.core import commands
from tests.helpers.running import ENTRIES, invoke

VERSION = f"gyral {commands.version()}\n"


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_command_prints_the_version_of_gyral(entry: str) -> None:
    assert {*ENTRIES} == {*program.COMMANDS}
    for words in (("--version",), ("model=rum", "--version")):
        outcome = invoke(*words, entry=entry)
        assert (outcome.status, outcome.out) == (0, VERSION)


def test_the_version_equals_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"gyral {gyral.__version__}\n" == VERSION

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sys, "argv", ["gyral", "--version"])
    monkeypatch.setattr(commands.metadata, "version", missing)
    assert f"gyral {commands.version()}\n" == VERSION  # of a checkout without installation
