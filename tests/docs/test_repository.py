"""The files at the top of the repository agree with each other, and the site documents this checkout."""

import re
import tomllib

import pytest

from tests.helpers.docs import load_script
from tests.helpers.found import at_least
from tests.helpers.running import ROOT


def test_license_and_citation_name_the_authors_and_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (author,) = (author["name"] for author in project["authors"])
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"(c) 2026 {author}\n" in (ROOT / "LICENSE").read_text()
    assert f"- name: {author}\n" in citation
    assert f"version: {project['version']}\n" in citation
    assert f"license: {project['license']}\n" in citation


def test_the_changes_of_the_next_version_are_short() -> None:
    _, latest, *_ = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert len(latest.splitlines()) <= 150


def test_the_workflow_runs_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert {*at_least(3, re.findall(r"run: make (\S+)", workflow))} <= targets


def test_the_site_documents_this_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = load_script("hooks")
    hooks.check_library()
    monkeypatch.setattr(hooks, "LIBRARY", ROOT / "elsewhere")
    with pytest.raises(hooks.ConfigurationError, match=r"^gyral is that of \S+, but the pages document \S+; run `make"):
        hooks.check_library()
