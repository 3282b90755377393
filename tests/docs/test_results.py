"""The tables of the pages are those that the records in results/records and benchmarks/records give."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from gyral.config.groups import load_table, served
from gyral.runs.record_files import SUFFIX
from tests.helpers.docs import load_script
from tests.helpers.running import ROOT

LARGEST = 50_000  # bytes


@pytest.fixture(scope="module")
def results() -> ModuleType:
    return load_script("results")


def test_pages_are_up_to_date(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["gyral", "--check"])
    assert results.main() == 0, capsys.readouterr().out


def test_records_are_small_and_contain_no_machine_names() -> None:
    runs = [*(ROOT / "results" / "records").rglob(f"*{SUFFIX}")]
    speeds = [*(ROOT / "benchmarks" / "records").iterdir()]
    assert runs
    assert speeds
    for file in runs:
        assert file.stat().st_size <= LARGEST, file
    for file in (*runs, *speeds):
        text = file.read_text()
        assert not [sign for sign in ('"host"', '"/', "=/") if sign in text], file


def test_a_page_without_records_is_an_error(results: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(ValueError, match=r"must be one of .* or a directory that contains runs"):
        results.filled("<!-- gyral report sweep=results/records/nothing -->\n<!-- end -->", ROOT / "docs" / "results")


def test_every_published_table_is_on_a_page(results: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    pages = [page.read_text() for folder in results.PAGES for page in folder.rglob("*.md")]
    shown = {found[2] for page in pages for found in results.REPORT.finditer(page)}
    for name, file in served("sweep").items():
        table = load_table(file)
        folders = {f"results/records/{table.experiment}", *map(str, Path("results/records", table.experiment).parents)}
        is_published = any(paper.keys() - {"row"} for paper in table.papers.values())
        assert not is_published or not shown.isdisjoint({name, *folders}), f"{name} is on no page of results"
