"""The wheel: every package is listed, and nothing but `gyral` and `hydra_plugins` is importable."""

import tomllib
from pathlib import Path

from tests.helpers.found import at_least

ROOT = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_folder_is_a_package() -> None:
    folders = at_least(64, {path.parent for path in (ROOT / "src" / "gyral").rglob("*.py")})
    assert all((folder / "__init__.py").is_file() for folder in folders)


def test_files_beside_modules_are_packaged() -> None:
    packaged = SETUPTOOLS["package-data"]
    others = {
        path
        for path in (ROOT / "src" / "gyral").rglob("*.*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and path.name != "README.md"
    }
    at_least(41, others)
    assert others == {path for pattern in packaged["gyral"] for path in (ROOT / "src" / "gyral").glob(pattern)}
    files = {path for path in (ROOT / "conf").rglob("*") if path.is_file()}
    at_least(214, files)
    assert files == {path for pattern in packaged["gyral.conf"] for path in (ROOT / "conf").glob(pattern)}
