"""Optional dependencies: a missing one is an error of one line that names the extra to install."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from gyral.core.errors import UserError
from gyral.core.extras import import_extra
from tests.helpers.found import at_least

ROOT = Path(__file__).parents[2]


def test_a_missing_package_is_one_line_with_the_extra() -> None:
    message = r"^sweep=x: needs the package no_such_package: pip install 'gyral\[tune\]'$"
    with pytest.raises(UserError, match=message):
        import_extra("no_such_package", "sweep=x", "tune")
    assert import_extra("json", "sweep=x", "tune").dumps([]) == "[]"


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
