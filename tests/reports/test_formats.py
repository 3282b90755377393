"""A report's tables in Markdown, LaTeX and as CSV: the same numbers in each, every one with its runs."""

import csv
import re
from pathlib import Path

import pytest

from gyral.reports import catalogue as sweeps
from gyral.reports import tables
from gyral.reports.render import formats
from tests.helpers.running import invoke
from tests.helpers.written import FIG4, TABLE1, write_answers, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a table, a figure, a table of tasks, and of none."""
    directory = tmp_path_factory.mktemp("runs")
    for seed, accuracy in ((1, 0.20), (2, 0.23)):
        write_run(directory, f"{TABLE1}/gru", seed=seed, accuracy=accuracy)
    changed = write_run(directory, f"{TABLE1}/lstm", seed=2, accuracy=0.25)
    (changed / "git.diff").write_text("+")
    failed = write_run(directory, f"{TABLE1}/lstm")
    (failed / "FAILED").write_text("Traceback (most recent call last):\n  File\nNonFiniteError: loss_nan | 100 %\n")
    write_run(directory, f"{FIG4}/lstm", accuracy=0.125)
    write_answers(directory, "lstm", 1, 0.9)
    write_answers(directory, "gru_attention", "all", 0.5, **{f"accuracy_qa{qa}": 0.05 * qa for qa in range(1, 21)})
    other = write_run(directory, "none", accuracy=0.75)
    (other / "overrides.yaml").write_text("- model=gru\n- optimizer.lr=0.1\n")
    return directory


@pytest.fixture(scope="module")
def sections(runs: Path) -> list[tables.Section]:
    jobs, told = sweeps.read(runs)
    assert not told
    return tables.sections(jobs, runs)


def test_markdown_has_a_row_of_every_row_in_every_layout(sections: list[tables.Section]) -> None:
    text = formats.markdown(sections, ["directory_x: cannot be read"], with_runs=True)
    numbers = "21.5 ± 2.1 (seeds 1, 2; 100,000 steps) | 21.5 | missing | 17.6 | 12,030 | 14k |"
    assert f"| GRU | {numbers}\n" in text
    assert "| LSTM | 25.0 (seed 2; 100,000 steps; seed 1 FAILED) | 25.6 |" in text
    assert re.search(r"\| LSTM \| 0\.0200 \| 0\.5000 \| 12\.5 \(seed 1; 100,000 steps\) \| stays at the baseline", text)
    assert "| GRU, attention, task.qa=all | 52.5 | 77.3 | 2 of 20 | 60,000 |" in text
    assert "## Runs on unknown" in text
    assert "directory\\_x: cannot be read" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    assert "| `python -m src.train -m seed=1,2 '~callbacks.progress_bar'` |" in text
    assert "ac466c4a76 + uncommitted changes" in text


def test_latex_is_free_of_signs_that_it_would_trip_over(sections: list[tables.Section]) -> None:
    text = formats.latex(sections, ["a line"])
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert r"    GRU & 21.5 $\pm$ 2.1 & 21.5 & – & 17.6 & 12,030 & 14k \\" in body
    assert r"    LSTM & 25.0$^\dagger$ & 25.6 &" in body
    assert r"RUM $\lambda$ = 1, $\eta$ none" in body
    assert r"accuracy on test in \%" in body
    assert not re.search(r"(?<!\\)[%#_]", body)
    plain = re.sub(r"\$[^$]*\$", "", body)
    assert not set(re.findall(r"[^\x00-\x7f]", plain)) - {"–"}
    for opened in ("table", "tabular"):
        assert body.count(f"\\begin{{{opened}}}") == body.count(f"\\end{{{opened}}}") == 5
    for tabular in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end", body, re.DOTALL):
        rows = [line for line in tabular[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(tabular[0])}
    assert "% a line\n" in text
    assert re.search(r"^% GRU: seed 1, DONE, \S+, commit ac466c4a76, W&B 0f22b828c43a, ", text, re.MULTILINE)


def test_csv_leads_from_every_number_to_its_runs(sections: list[tables.Section], runs: Path) -> None:
    lines = list(csv.DictReader(formats.as_csv(sections).splitlines()))
    first = [line for line in lines if (line["row"], line["column"]) == ("GRU", "length=30")]
    assert [line["seed"] for line in first] == ["1", "2"]
    for line, accuracy in zip(first, (20.0, 23.0), strict=True):
        assert float(line["value"]) == pytest.approx(accuracy)
        assert float(line["mean"]) == pytest.approx(21.5)
        assert float(line["deviation"]) == pytest.approx(3 / 2**0.5)
        assert (line["runs"], line["paper"], line["state"], line["steps"]) == ("2", "21.5", "DONE", "100000")
        assert (Path(line["place"]) / "DONE").is_file()
        assert (line["commit"], line["wandb_id"]) == ("ac466c4a7639e50dd91bd177ceb493ec96c6c0c5", "0f22b828c43a")
        assert line["command"] == "python -m src.train -m seed=1,2 '~callbacks.progress_bar'"
    failed, done = (line for line in lines if (line["row"], line["column"]) == ("LSTM", "length=30"))
    assert (failed["value"], failed["state"], failed["reason"]) == ("", "FAILED", "NonFiniteError: loss_nan | 100 %")
    assert (done["uncommitted_changes"], failed["uncommitted_changes"]) == ("true", "false")
    assert any(line["row"] == "WeiNet" and line["state"] == "missing" for line in lines)
    average = next(
        line for line in lines if line["row"] == "GRU, attention, task.qa=all" and line["column"] == "average"
    )
    assert (float(average["mean"]), float(average["paper"])) == (pytest.approx(52.5), 77.3)
    assert all(line["place"] for line in lines if line["mean"])


def test_files_are_written_by_their_suffix(runs: Path, tmp_path: Path) -> None:
    names = [tmp_path / f"new/report{suffix}" for suffix in (".md", ".tex", ".csv", ".html")]
    outcome = invoke(f"sweep={runs}", f"save=[{','.join(map(str, names))}]", entry="report")
    assert outcome.status == 0, outcome.err
    for path in names:
        assert f"Written: {path}\n" in outcome.out
        assert "GRU" in path.read_text()
    (tmp_path / "file").write_text("")
    error = invoke(f"sweep={runs}", f"save={tmp_path}/file/report.md", entry="report").error
    assert error.startswith(f"{tmp_path}/file")
