"""The tables of the pages are those that the records in results/records and benchmarks/records give."""

import re
import shutil
import sys
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from gyral.config.groups import generated_choices
from gyral.config.tables import load_table
from gyral.runs.record_files import SUFFIX
from gyral.runs.run_record import Provenance, RunRecord
from tests.helpers.composing import each_once
from tests.helpers.docs import load_script
from tests.helpers.found import at_least
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
    with each_once():
        assert results.main() == 0, capsys.readouterr().out


def test_the_comments_of_pages_are_found(results: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    pages = {page: page.read_text(encoding="utf-8") for page in (*results.MEASURED, *Path("docs").rglob("*.md"))}
    for pattern, count in ((results.REPORT, 53), (results.CLAIMS, 7), (results.PROBE, 4)):
        at_least(count, (found for page in pages.values() for found in pattern.finditer(page)))
    figures = "|".join(results.figures(Path("docs")))
    figure = re.compile(rf"<!-- (?:{figures})(?: [^>]+)? -->")
    at_least(72, (found for page in pages.values() for found in figure.finditer(page)))


def test_records_are_small_and_contain_no_machine_names() -> None:
    runs = at_least(3300, (ROOT / "results" / "records").rglob(f"*{SUFFIX}"))
    speeds = at_least(5, (ROOT / "benchmarks" / "records").iterdir())
    for file in runs:
        assert file.stat().st_size <= LARGEST, file
    for file in (*runs, *speeds):
        text = file.read_text()
        assert not [sign for sign in ('"host"', '"/', "=/") if sign in text], file


def test_a_page_without_records_is_an_error(results: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(ValueError, match="there is no such directory"):
        results.filled("<!-- gyral report sweep=results/records/nothing -->\n<!-- end -->", ROOT / "docs" / "results")


def test_a_table_that_has_no_records_yet_is_shown_without_runs(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results.speeds, "step_ratios", lambda table: {})
    text = results.filled("<!-- gyral report sweep=results/records/language_small -->\n<!-- end -->", tmp_path)
    assert "`gyral train sweep=language_small` trains the rows in 138 runs. Its rows are LSTM, GRU," in text


def test_tables_have_the_time_of_steps_where_it_was_measured(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for ratios, heads in (({}, []), ({"gru": 1.234, "new": 3.0}, ["step ×"])):
        monkeypatch.setattr(results.speeds, "step_ratios", lambda table, found=ratios: found)
        [section], _, _ = results.collect("results/records/adding", results.known(), everything=True)
        columns = {
            column.head: [entry.text for entry in column.entries] for column in results.with_cost(section)[0].columns
        }
        assert [head for head in columns if head == "step ×"] == heads
    assert columns["step ×"] == ["–", "–", "1.23", "–"]


def test_the_page_says_how_steps_were_measured_or_how_to(results: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = results.speeds
    row = {
        "row": "gru",
        "step_ratio": 1.5,
        "batch": 32,
        "time_steps": 128,
        "cpu": "CPU",
        "threads": 1,
        "torch": "2",
        "commit": "0123456789ab",
    }
    monkeypatch.setattr(speeds, "measurements", lambda name: [row])
    speeds.step_ratios.cache_clear()
    assert speeds.steps("no_such_table").startswith("The time of a training step has not been measured yet; `python -m")
    monkeypatch.setattr(speeds, "step_ratios", lambda table: {"gru": 1.5})
    assert "32 × 128: `benchmarks/records/language_small.jsonl`, CPU, one thread, PyTorch 2" in speeds.steps(
        "language_small"
    )


@pytest.mark.parametrize(
    ("bits", "ratios", "lacking"),
    [
        ({}, {"lstm": 1.5}, None),
        ({"lstm": [1.7, 1.8]}, {}, None),
        ({"lstm": [1.7, 1.8], "gru": [1.9], "s5": [1.6]}, {"lstm": 1.5, "gru": 1.0}, " rows lack one"),
    ],
)
def test_language_is_drawn_from_the_rows_that_have_both_numbers(
    results: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    bits: dict[str, list[float]],
    ratios: dict[str, float],
    lacking: str | None,
) -> None:
    language, abilities = results.language, results.abilities
    monkeypatch.setattr(language, "bits", lambda: bits)
    monkeypatch.setattr(results.speeds, "step_ratios", lambda table: ratios)
    language.points.cache_clear()
    assert language.is_drawn() == (lacking is not None)
    text = language.picture()
    assert lacking in text if lacking else "there is none yet" in text
    cells = abilities.language_column().cells
    assert {name: cell.text for name, cell in cells.items()} == {
        name: f"{sum(values) / len(values):.2f}" for name, values in bits.items()
    }
    assert sum(cell.bold for cell in cells.values()) == (len(cells) > 0)
    assert {name: cell.text for name, cell in abilities.cost_column().cells.items()} == {
        name: f"{ratio:.2f}" for name, ratio in ratios.items()
    }
    language.points.cache_clear()


def test_rows_are_those_with_the_same_cell(results: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = results.abilities.rate_column("recall", "recall").cells
    assert {"lstm", "delta_net_positive", "delta_product", "rum_lambda1"} <= shown.keys()
    assert not {"delta_net", "kda", "rum_lambda1_eta"} & shown.keys()  # the table has other eigenvalues, and no η


def test_a_figure_is_drawn_again_if_its_numbers_change(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(results.tutorials, "rendered", lambda: [])
    abilities, language = results.abilities, results.language
    monkeypatch.setattr(language, "is_drawn", lambda: False)
    monkeypatch.setattr(abilities, "columns", lambda: [abilities.Column("a", "b", {"lstm": abilities.Cell("1")})])
    [(path, content)] = results.pictures().items()
    assert path == Path("docs/assets/abilities.png")
    monkeypatch.setattr(results, "ASSETS", tmp_path)
    (tmp_path / path.name).write_bytes(content)
    for name in results.PLOTS:  # which are up to date
        shutil.copy(ROOT / "docs" / "assets" / name, tmp_path)
    assert not results.pictures()
    monkeypatch.setattr(abilities, "columns", lambda: [abilities.Column("a", "b", {"lstm": abilities.Cell("2")})])
    assert [*results.pictures()] == [tmp_path / path.name]


def test_the_items_of_the_papers_add_up() -> None:
    page = (ROOT / "docs" / "results" / "coverage.md").read_text()
    counts, *parts = re.split(r"\n## ", page)
    *sources, total = at_least(6, ([int(number) for number in row] for row in re.findall(r"\| (\d+) " * 4, counts)))
    assert [sum(column) for column in zip(*sources, strict=True)] == total
    missing, differing = parts
    different = [
        sum(int(count) for count in re.findall(r"^\| (\d+) \|", part, re.MULTILINE))
        for part in differing.split("\n### ")[1:]
    ]
    for items, printed, with_difference, absent in [*sources, total]:
        assert items == printed + with_difference + absent
    assert [row[2] for row in sources] == different
    assert len(re.findall(r"^\| [^-\n]*\|", missing, re.MULTILINE)) - 1 == total[3]


def test_every_published_table_is_on_a_page(results: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    pages = at_least(25, (page.read_text() for folder in results.PAGES for page in folder.rglob("*.md")))
    shown = {found[2] for page in pages for found in results.REPORT.finditer(page)}
    for name, file in at_least(52, generated_choices("sweep").items()):
        table = load_table(file)
        folders = {f"results/records/{table.experiment}", *map(str, Path("results/records", table.experiment).parents)}
        is_published = any(paper.keys() - {"row"} for paper in table.papers.values())
        assert not is_published or not shown.isdisjoint({name, *folders}), f"{name} is on no page of results"


def test_a_signal_stops_a_run_that_is_just_starting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    remaining = load_script("remaining", ROOT / "results")
    stopped_by: list[object] = []

    class Process:
        def __init__(self, *_: object, **__: object) -> None:
            self.signal = Thread(target=remaining.stop)  # the main thread, in which signals arrive
            self.signal.start()
            self.signal.join(0.05)

        def terminate(self) -> None:
            stopped_by.append(self)

        def wait(self) -> int:
            self.signal.join()
            return 1

    monkeypatch.setattr(remaining, "LOGS", tmp_path)
    monkeypatch.setattr(remaining.subprocess, "Popen", Process)
    item = remaining.Item("a", "b", "c", {}, 1.0)
    remaining.train(item)
    assert len(stopped_by) == 1
    remaining.train(item)
    assert len(stopped_by) == 1, "no run starts after the signal"


def test_the_queue_trains_the_seeds_that_lack() -> None:
    remaining = load_script("remaining", ROOT / "results")
    recall = {"optimizer.lr": "0.005", "seed": "1,2,99"}
    item = remaining.Item("a title", "recall", "recall/lstm", recall, 3.0)
    assert item.lacking() == item._replace(options=recall | {"seed": "99"}, hours=1.0)
    assert item._replace(options=recall | {"seed": "1,2"}).lacking() is None
    of_list = {"model.layer_sizes": "[400,400,200]", "seed": "1,2,3"}
    words = remaining.Item("a title", "on_lstm_paper_lm_small", "on_lstm_paper/lm_small/on_lstm", of_list, 3.0)
    assert words.lacking() is None
    since = item._replace(since="9999")
    assert since.lacking() == since
    chosen = remaining.Item("a title", "language_small", "language_small/lstm", {"seed": "1,99"}, 3.0)
    assert chosen.lacking() == chosen, "trials choose the learning rate"


def test_the_commands_of_folded_runs_are_those_of_the_runs() -> None:
    runs = load_script("runs")
    given = [
        f"gyral train experiment={row} task.qa={qa} seed={seed}{more}"
        for row in ("a/gru", "a/lstm")
        for qa, more in ((1, ""), (2, ""), (10, " 'model.layer_sizes=[4,2]'"))
        for seed in (1, 2)
    ]
    given.remove("gyral train experiment=a/gru task.qa=2 seed=1")
    found = [RunRecord("run", {}, {}, {}, provenance=Provenance(command=command)) for command in given]
    assert runs.commands_of(found) == [
        "gyral train -m experiment=a/gru task.qa=1 seed=1,2",
        "gyral train experiment=a/gru task.qa=2 seed=2",
        "gyral train -m experiment=a/gru task.qa=10 seed=1,2 'model.layer_sizes=[4,2]'",
        "gyral train -m experiment=a/lstm task.qa=1,2 seed=1,2",
        "gyral train -m experiment=a/lstm task.qa=10 seed=1,2 'model.layer_sizes=[4,2]'",
    ]
