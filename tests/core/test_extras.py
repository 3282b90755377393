"""Optional dependencies: a missing one is an error of one line that names the extra to install."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from gyral.config.errors import describe
from gyral.core.errors import UserError
from gyral.core.extras import OF_EXTRAS, import_extra, import_framework, missing_extra
from tests.helpers.found import at_least

ROOT = Path(__file__).parents[2]


def test_a_missing_package_is_one_line_with_the_extra() -> None:
    message = r"^sweep=x: needs the package no_such_package: pip install 'gyral\[tune\]'$"
    with pytest.raises(UserError, match=message):
        import_extra("no_such_package", "sweep=x", "tune")
    assert import_extra("json", "sweep=x", "tune").dumps([]) == "[]"


def test_a_missing_import_of_an_extra_is_one_line_wherever_it_occurs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra in OF_EXTRAS.items():
        assert extras[extra][0].startswith(package)
    error = ModuleNotFoundError("No module named 'matplotlib.figure'", name="matplotlib.figure")
    assert missing_extra(error) == describe(error) == "needs the package matplotlib: pip install 'gyral[figures]'"
    assert missing_extra(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'gyral\.none'$"):
        import_framework("gyral.none", "gyral none")


def test_the_page_of_the_installation_says_why_each_dependency_is_needed() -> None:
    """With few of them: they are 51 packages with their own dependencies."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.split(r"[\[<>=;]", package)[0] for package in dependencies]
    assert len(names) <= 14
    reasons = (ROOT / "docs" / "installation.md").read_text().partition("| packages | number |")[2].partition("\n\n")[0]
    assert not [name for name in names if not re.search(rf"\b{name}\b", reasons)]
    assert sum(map(int, re.findall(r"\| (\d+) \|", reasons))) == 51


def test_every_extra_that_an_error_names_exists_and_make_install_has_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        node.args[2].value
        for text in map(Path.read_text, at_least(500, (ROOT / "src" / "gyral").rglob("*.py")))
        if "import_extra(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "import_extra"
        if isinstance(node.args[2], ast.Constant)
    }
    assert {"applications", "tune", "digits"} <= named <= set(extras)
    installed = " ".join(extras["dev"])
    assert not [extra for extra in named - {"ray", "huggingface"} if extra not in installed]


def test_the_page_of_the_installation_has_every_extra_with_its_packages() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "installation.md").read_text()
    rows = dict(re.findall(r"^\| `gyral\[(\w+)\]` \| (.*) \|$", page, re.MULTILINE))
    assert {*rows} == {*extras} - {"browser", "docs", "dev"}
    for extra, text in rows.items():
        packages = [re.split(r"[\[<>=;]", package)[0] for package in extras[extra] if not package.startswith("gyral[")]
        assert not [package for package in packages if package not in text.lower()], extra
