"""An application can be removed by the command in its README, and no page of the library links to its pages."""

import functools
import itertools
import re
import subprocess

from tests.helpers.found import at_least
from tests.helpers.running import ROOT

FOLDER = ROOT / "src" / "gyral" / "applications"
APPLICATIONS = at_least(7, sorted(path.parent.name for path in FOLDER.glob("*/README.md")))


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


@functools.cache
def files_of(application: str) -> frozenset[str]:
    return frozenset(at_least(28, listed(application)))


def test_the_commands_list_every_file_that_names_the_application() -> None:
    folders = ("conf", "docs", "results/claims", "examples", "benchmarks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    paths = at_least(305, (path for path in paths if path.suffix in (".yaml", ".md", ".py", ".ipynb")))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    naming = re.compile(r"\bgyral[./]applications[./](\w+)\b")
    named = {(found[1], path) for path, text in texts.items() for found in naming.finditer(text)}
    assert not [(name, path) for name, path in named if name in APPLICATIONS and path not in files_of(name)]
    for application in APPLICATIONS:
        assert f"src/gyral/applications/{application}/__init__.py" in files_of(application)


def test_every_pattern_matches_a_file_and_no_file_is_of_two_applications() -> None:
    for application in APPLICATIONS:
        for pattern in at_least(6, patterns(application)):
            assert any(ROOT.glob(pattern.replace("records/*.", "records/**/*."))), pattern
    for one, other in itertools.combinations(APPLICATIONS, 2):
        assert not files_of(one) & files_of(other)


def test_no_page_of_the_library_or_of_another_application_links_to_its_pages() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", FOLDER / "README.md", *(ROOT / "docs").rglob("*.md")]
    links = at_least(
        250,
        (
            (page, (page.parent / target).resolve())
            for page in (*pages, *FOLDER.glob("*/README.md"))
            for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        ),
    )
    for application in APPLICATIONS:
        own = {ROOT / path for path in files_of(application)}
        assert not [link for link in links if link[0] not in own and link[1] in own]
