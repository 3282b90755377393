"""Stand-ins for modules, with packages that the tests write."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gyral.core.stand_ins import decorator, decorator_factory, definition, import_without, until_imported

HEAVY = """
class Model:
    pass

def double(number):
    return 2 * number

def louder(function=None, mark="!"):
    return (lambda text: function(text) + mark) if function else lambda function: louder(function, mark)

def styled(prefix):
    return lambda function: lambda text: prefix + function(text)
"""
USER = """
import heavy.deep
from heavy.deep import Model, double

@heavy.deep.louder
def say(text):
    return text

@heavy.deep.louder(mark="?")
def ask(text):
    return text

@heavy.deep.styled("- ")
def point(text):
    return text

def is_model(value):
    return isinstance(value, Model)
"""
NAMES = {
    "heavy": {},
    "heavy.deep": {"Model": definition, "double": definition, "louder": decorator, "styled": decorator_factory},
    "missing": {},
    "missing.deep": {"name": definition},
}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of two packages: `user`, which imports `heavy`."""
    (tmp_path / "heavy").mkdir()
    (tmp_path / "heavy" / "__init__.py").touch()
    (tmp_path / "heavy" / "deep.py").write_text(HEAVY)
    (tmp_path / "user.py").write_text(USER)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("heavy", "heavy.deep", "user"):
        sys.modules.pop(name, None)


def test_a_package_works_with_stand_ins_and_with_what_they_stand_for(packages: Path) -> None:
    import_without(("user",), NAMES)
    user = sys.modules["user"]
    assert not {"heavy", "heavy.deep", "missing"} & set(sys.modules)
    assert (user.say("a"), user.ask("a")) == ("a", "a")
    assert not user.is_model(3)
    assert "heavy" not in sys.modules
    assert user.point("a") == "- a"  # needs what it calls
    assert (user.say("a"), user.ask("a"), user.double(4)) == ("a!", "a?", 8)
    assert user.is_model(sys.modules["heavy.deep"].Model())
    assert not user.is_model(3)
    assert isinstance(user.Model(), user.Model)
    assert user.heavy.deep.styled("- ")(str)(1) == "- 1"


@pytest.mark.parametrize("line", ["from heavy.deep import more", "heavy.deep.more", "import heavy.other"])
def test_a_package_that_needs_more_is_imported_as_usual(packages: Path, line: str) -> None:
    (packages / "heavy" / "deep.py").write_text(f"{HEAVY}\nmore = 1\n")
    (packages / "heavy" / "other.py").touch()
    (packages / "user.py").write_text(f"{USER}\n{line}\n")
    import_without(("user",), NAMES)
    assert sys.modules["user"].Model is sys.modules["heavy.deep"].Model


def test_what_has_been_imported_gets_no_stand_in(packages: Path) -> None:
    import heavy.deep  # type: ignore[import-not-found]

    import_without(("user",), NAMES)
    assert sys.modules["user"].Model is heavy.deep.Model
    assert sys.modules["user"].say("a") == "a!"


def test_a_package_that_cannot_be_imported_raises_its_own_error(packages: Path) -> None:
    (packages / "user.py").write_text("import nothing_like_this")
    with pytest.raises(ModuleNotFoundError, match="nothing_like_this"):
        import_without(("user",), NAMES)
    assert "heavy" not in sys.modules


def test_a_function_is_replaced_when_a_module_has_been_imported(packages: Path) -> None:
    made = []

    def make() -> type[int]:
        made.append(1)
        return int

    function = until_imported("heavy", str, make)
    assert function(3) == "3"
    import heavy  # noqa: F401

    assert (function("3"), function("4"), len(made)) == (3, 4, 1)
