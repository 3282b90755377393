"""A new task is three new files: the suites of all tasks find it, and no other file of the project changes.

A copy of the checkout gets the files, and another Python runs the suites there on what was added.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.running import ROOT

COPIED = ("conf", "src", "tests")  # modules find the folder of the project by their own paths
LINKED = ("Makefile", "README.md", "benchmarks", "docs", "examples", "pyproject.toml")


class Addition(NamedTuple):
    """What is added to the project.

    Attributes:
        files: the contents of the new files, by their paths.
        suites: the tests that find it.
        pattern: the option -k of pytest that selects the cases of what is added.
        cases: the smallest number of these cases.
    """

    files: dict[str, str]
    suites: tuple[str, ...]
    pattern: str
    cases: int


def file_of(page: str, name: str) -> str:
    """Return the content of a file that a page of the documentation shows."""
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    found = re.search(rf"^`{re.escape(name)}`:\n\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} shows no file {name}"
    return found[1]


def new_task() -> Addition:
    """Return the task of docs/how-to/task.md."""
    files = {
        "src/gyral/tasks/parity.py": file_of("task.md", "parity.py"),
        "conf/task/parity.yaml": file_of("task.md", "conf/task/parity.yaml").replace(" parity.", " gyral.tasks.parity."),
        "tests/tasks/test_parity.py": file_of("task.md", "tests/tasks/test_parity.py"),
    }
    return Addition(files, ("tests/tasks/test_contract.py", "tests/tasks/test_parity.py"), "parity", 20)


def checkout(folder: Path) -> Path:
    """Return a copy of the project that may be added to."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    return folder


def add(addition: Addition, folder: Path) -> None:
    """Write the new files, none of which may be there."""
    for name, content in addition.files.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(content)


def run_suites(addition: Addition, folder: Path) -> None:
    """Run the suites on what was added, in a new process."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *addition.suites, "-k", addition.pattern]
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder)])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    passed = re.search(r"^(\d+) passed", ended.stdout, re.MULTILINE)
    assert passed, ended.stdout
    assert int(passed[1]) >= addition.cases, ended.stdout


def test_a_task_is_three_new_files(tmp_path: Path) -> None:
    addition, folder = new_task(), checkout(tmp_path)
    add(addition, folder)
    run_suites(addition, folder)
