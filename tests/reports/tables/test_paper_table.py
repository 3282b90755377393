"""Tables of measures beside published values."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from gyral.core.measures import ACCURACY, COARSE
from gyral.reports import catalogue
from gyral.reports.frame import Frame
from gyral.reports.measures import with_measures
from gyral.reports.rows import Row, rows_of
from gyral.reports.tables.cells import measured
from gyral.reports.tables.layouts import tables_of
from gyral.reports.tables.table import NOTHING
from gyral.runs.records import read
from tests.helpers.running import invoke
from tests.helpers.written import TABLE1, report_of, write_run


def test_a_table_has_means_and_deviations_beside_the_papers_numbers(tmp_path: Path) -> None:
    for seed, accuracy in ((1, 0.20), (2, 0.23)):
        write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=accuracy)
    write_run(tmp_path, f"{TABLE1}/gru", length=50, accuracy=0.1751)
    for seed, steps in ((1, 9_000), (2, 8_000)):
        write_run(tmp_path, f"{TABLE1}/rum_lambda1", seed=seed, accuracy=0.9995, steps=steps)
    entries, printed = report_of(tmp_path)
    # the deviation of two values is their distance over √2: 3 / 1.414
    assert entries["GRU"] == [
        "21.5 ± 2.1 seeds 1, 2 100,000 steps",
        "21.5",
        "17.5 1 of 2 seeds 100,000 steps",
        "17.6",
        "12,030 12,050",
        "14k",
    ]
    assert entries["RUM λ = 1, η none"][:2] == ["100.0 ± 0.0 seeds 1, 2 8,000 to 9,000 steps", "100.0"]
    assert entries["WeiNet"] == ["–", "100.0", "–", "100.0", "–", "22k"]
    papers = catalogue.load("rum_paper_table1").papers.values()
    # rows without a run and a published value are counted below the table alone
    assert list(entries) == [paper["row"] for paper in papers if "accuracy" in paper]
    assert "uRNN (not in the paper)" in [paper["row"] for paper in papers]
    assert "63 runs not started." in printed
    given = "logger=none '~callbacks.progress_bar'"
    assert f"python -m src.train sweep=rum_paper_table1 {given} hydra.sweep.dir={tmp_path}\n" in printed


def test_runs_with_other_settings_are_not_mixed(tmp_path: Path) -> None:
    short = "+trainer.limit=300"
    write_run(tmp_path, f"{TABLE1}/gru", short, "threads=1", accuracy=0.1, steps=300)
    entries, printed = report_of(tmp_path)
    assert entries["GRU"][0] == "10.0"
    caption = f"1 of 2 seeds, 300 steps, at the checkpoints with the best validation score; all with {short}"
    assert caption in " ".join(printed.split())
    # a job's directory is named after all that was given
    assert f"sweep=rum_paper_table1 {short} logger=none threads=1 '~callbacks.progress_bar' hydra" in printed
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.3)
    write_run(tmp_path, f"{TABLE1}/gru", length=4, accuracy=0.4)
    entries, printed = report_of(tmp_path)
    assert entries["GRU"][:6:2] == [
        "30.0 100,000 steps",
        "–",
        "40.0 100,000 steps",
    ]
    assert entries[f"GRU {short}"][0] == "10.0 300 steps"
    assert "1 of 2 seeds, at the checkpoints" in " ".join(printed.split())
    assert "all with" not in printed


def test_results_that_are_not_finite_have_a_mean(tmp_path: Path) -> None:
    for seed, accuracy in ((1, math.nan), (2, 0.5)):
        write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=accuracy)
    assert report_of(tmp_path)[0]["GRU"][0].startswith("nan ± nan")


def test_a_measure_that_the_task_of_a_row_lacks_has_no_entry(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.5)
    records, _ = read(tmp_path)
    sweep = catalogue.load("rum_paper_table1")
    frame = Frame(sweep.title, rows_of(sweep, records), sweep)
    [row] = [row for row in frame.rows if row.records]
    assert measured(frame, row, ACCURACY, "30").text.startswith("50.0")
    assert measured(frame, row, COARSE, "30") == NOTHING
    assert measured(frame, row, COARSE, "50") == NOTHING


def test_seeds_and_steps_are_shown_once_for_the_same_runs(tmp_path: Path) -> None:
    for length, steps in ((30, 9_000), (50, 8_000)):  # with the same steps, they would be in the caption
        write_run(tmp_path, f"{TABLE1}/gru", length=length, accuracy=0.5, steps=steps)
    sweep = replace(catalogue.load("rum_paper_table1"), column=None, also=("accuracy",))
    paper = sweep.papers[f"{TABLE1}/gru"]
    rows = [Row(f"{TABLE1}/gru", (), paper, [record]) for record in read(tmp_path)[0]]
    rows.append(replace(rows[0], records=[]))
    sweep = with_measures(sweep, rows[0].records)
    [table] = tables_of(Frame(sweep.title, rows, sweep))
    *rows_of_runs, (_, absent) = table.rows
    for _, entries in rows_of_runs:
        assert [len(entry.lines) for entry in entries[:4:2]] == [2, 1]
    assert table.caption.startswith("1 of 2 seeds, at the")
    assert [entry.lines for entry in absent[:4:2]] == [["–"], ["–"]]


def test_runs_of_several_budgets_are_one_row(tmp_path: Path) -> None:
    short = "trainer.max_steps=300"
    for seed, accuracy in ((1, 0.20), (2, 0.23)):
        write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=accuracy)
    write_run(tmp_path, f"{TABLE1}/gru", short, accuracy=0.1, steps=300)
    write_run(tmp_path, f"{TABLE1}/gru", short, length=50, accuracy=0.4, steps=300)
    stopped = write_run(tmp_path, f"{TABLE1}/gru", "trainer.max_steps=200000", seed=3)
    entries, printed = report_of(tmp_path)
    assert [name for name in entries if name.startswith("GRU")] == ["GRU"]
    # each mean is of one budget, that with the most finished runs; the numbers of the others are notes
    assert entries["GRU"][0] == "21.5 ± 2.1 seeds 1, 2 100,000 steps 10.0 after 300 steps"
    assert entries["GRU"][2] == "40.0 1 of 2 seeds 300 steps"
    assert f"unfinished at step 40: {stopped}" in printed
    assert f"resume={stopped}" in printed
    listed = invoke(f"sweep={tmp_path}", "runs=true", entry="report").out
    assert listed.count("GRU: seed 1, DONE") == 3


def test_published_rows_have_their_values_and_are_never_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf" / "table").mkdir(parents=True)
    (tmp_path / "conf" / "table" / "own.yaml").write_text(
        "experiment: own\nreport: {layout: table, title: Own, column: task.length}\n"
        "sweep: {task.length: [4, 6], seed: [1, 2]}\nprotocol: {task: recall}\nrows:\n"
        "  theirs: {name: Theirs, published_only: true, paper: {accuracy: {4: 60.0}}}\n"
        "  gru: {model: gru}\n  lstm: {model: lstm}\n"
    )
    monkeypatch.chdir(tmp_path)
    for length, seed in itertools.product((4, 6), (1, 2)):
        write_run(Path("outputs/sweep/own"), "own/gru", length=length, seed=seed, accuracy=0.5)
    entries, printed = report_of(Path("own"))
    assert entries == {
        "Theirs": ["–", "60.0", "–", "–", "–", "–"],
        "gru": ["50.0 ± 0.0", "–"] * 2 + ["12,004 12,006", "–"],
    }
    assert "4 runs not started." in printed
    assert "sweep=own experiment=own/lstm " in printed
    assert "own/theirs" not in printed
    whole = invoke("sweep=own", "missing=false", entry="report").out
    assert "Theirs" in whole
    assert "not started" not in whole
    catalogue.load.cache_clear()
