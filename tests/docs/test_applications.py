"""An application can be removed by the command in its README, and no page of the library links to its pages."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.running import ROOT

FOLDER = ROOT / "src" / "gyral" / "applications"
APPLICATIONS = sorted(path.parent.name for path in FOLDER.glob("*/README.md"))


def patterns(application: str) -> list[str]:
    """Return the paths that the README of an application lists under "Remove"."""
    text = (FOLDER / application / "README.md").read_text()
    return re.search(r"^```removal\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1].split()  # type: ignore[index]


def listed(application: str) -> list[str]:
    """Return the lines that the command in a README prints, with the working tree in place of the index of Git."""
    text = (FOLDER / application / "README.md").read_text()
    command = re.search(r"^sed .* git ls-files --$", text, re.MULTILINE)[0]  # type: ignore[index]
    command = command.replace("ls-files", "ls-files --cached --others --exclude-standard")
    return subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()


def test_every_folder_of_an_application_has_a_readme() -> None:
    assert sorted(path.parent.name for path in FOLDER.glob("*/__init__.py")) == APPLICATIONS


@pytest.mark.parametrize("application", APPLICATIONS)
def test_the_command_lists_every_file_that_names_the_application(application: str) -> None:
    files = {*listed(application)}
    assert f"src/gyral/applications/{application}/__init__.py" in files
    name = re.compile(rf"\bgyral[./]applications[./]{application}\b")
    for folder in ("conf", "docs", "results/claims", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".yaml", ".md", ".py", ".ipynb") and name.search(path.read_text()):
                assert path.relative_to(ROOT).as_posix() in files


@pytest.mark.parametrize("application", APPLICATIONS)
def test_every_pattern_matches_a_file_and_no_file_of_another_application(application: str) -> None:
    for pattern in patterns(application):
        assert any(ROOT.glob(pattern.replace("records/*.", "records/**/*."))), pattern
    files = {*listed(application)}
    for other in {*APPLICATIONS} - {application}:
        assert not files & {*listed(other)}


@pytest.mark.parametrize("application", APPLICATIONS)
def test_no_page_of_the_library_or_of_another_application_links_to_its_pages(application: str) -> None:
    own = {ROOT / path for path in listed(application)}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", FOLDER / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in {*pages, *FOLDER.glob("*/README.md")} - own:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / Path(target)).resolve() not in own, f"{page}: {target}"
