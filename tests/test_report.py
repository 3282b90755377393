"""The command report."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.running import choices, invoke, spawn
from tests.helpers.written import TABLE1, write_run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["runs=true"], "sweep=<nothing>: must be one of {SWEEPS}, or a directory that contains runs"),
        (["sweep=nothing"], "sweep=nothing: must be one of {SWEEPS}, or a directory"),
        (["sweep=rum_paper_fig4", "save=a.pdf"], "sweep=rum_paper_fig4: has no run, which a.pdf could show"),
        (["figure=derivatives", "save=a.tex"], "save=a.tex: must end in one of .pdf, .svg, .png for a figure"),
        (["figure=cosines", "run={}", "beside=[]"], "beside=[]: must be directories, such as [outputs/first,"),
        (["sweep={}"], "sweep={}: contains no run"),
        (["figure=nothing"], "figure=nothing: must be one of target_kernel, "),
        (["figure=target_kernel"], "run=<nothing>: figure=target_kernel needs a run directory"),
        (["figure=target_kernel", "run={}"], "run={}: must be a run directory, one that holds config.yaml"),
        (["run={}"], "run={}: needs figure=<name>, the figure to draw from the run"),
        (["sweep={}", "save=table.doc"], "save=table.doc: must end in one of .html, .md, .tex, .csv, .pdf, .svg, .png"),
        (["sweep={}", "columns=[]"], "columns=[]: must be heads of columns or options, such as [optimizer.lr,"),
        (["figure=derivatives", "columns=a"], "columns=a: is an option of tables, not of figures"),
        (["figure=cosines", "only=[seed=1]"], "only=[seed=1]: chooses runs of sweep=<name or directory>, not figures"),
        (["figure=cosines", "sweep=x", "run={}"], "sweep=x: is an option of tables, not of figures"),
        (["figure=cosines", "watch=true", "run={}"], "watch=True: is an option of tables, not of figures"),
        (["figure=cosines", "missing=false", "run={}"], "missing=False: is an option of tables, not of figures"),
        (["figure=list", "all=true", "run={}"], "all=True: is an option of tables, not of figures"),
        (["figure=derivatives", "run={}"], "run={}: figure=derivatives shows no run"),
        (["figure=derivatives", "beside=[a,b]"], "beside=a, b: figure=derivatives shows no run"),
        (["only=[seed=1]"], "only=[seed=1]: chooses runs of sweep=<name or directory>"),
        (["sweep={}", "save=t.md", "width=page"], "width=page: needs save=<file> with a table (.tex) or a plot"),
        (["sweep={}", "save=t.tex", "width=9"], "width=9: must be one of column, page"),
        (["sweep={}", "watch=2"], "watch=2: must be true or false"),
        (["sweep=wandb:gyral"], "sweep=wandb:gyral: must be wandb:<entity>/<project>"),
        (["sweeps=1"], "sweeps: no such option; did you mean sweep? allowed: sweep, save, "),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = invoke(*(argument.format(tmp_path) for argument in arguments), entry="report").error
    assert error.startswith(expected.format(tmp_path, SWEEPS=", ".join(choices("sweep"))))
    assert not list(tmp_path.iterdir())


def test_figures_of_one_run_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "gyral.report.draw_figure", lambda *arguments: asked.append(arguments) or [tmp_path / "picture.png"]
    )
    assert invoke("figure=cosines", f"run={tmp_path}", entry="report").out == f"{tmp_path}/picture.png\n"
    assert invoke("figure=derivatives", "trust=my_cells", "save=a.svg", entry="report").status == 0
    assert invoke("figure=norms", f"run={tmp_path}", 'beside=[a,"b,c"]', entry="report").status == 0
    assert asked == [
        ("cosines", tmp_path, None, [], []),
        ("derivatives", None, "my_cells", [], [Path("a.svg")]),
        ("norms", tmp_path, None, [Path("a"), Path("b,c")], []),
    ]


def test_a_figure_is_saved_where_the_command_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("figure=derivatives", "save=[a.svg,b.png]", entry="report").out == "a.svg\nb.png\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.png"]


def test_a_report_of_a_sweep_needs_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    script = f"""
import sys
from gyral import report
from gyral.config import command_line as cli
sys.argv = ["src/report.py", "sweep={tmp_path}"]
cli.main(report.report, "_report/report")
print([name for name in ("torch", "pytorch_lightning", "wandb") if name in sys.modules])
"""
    outcome = spawn("-c", script)
    assert outcome.status == 0, outcome.err
    assert outcome.out.endswith("\n[]\n")


def test_the_help_lists_the_options() -> None:
    out = invoke("--help", entry="report").out
    assert "python -m src.report sweep=rum_paper_table1" in out
    assert "  figure=     of a run, saved by save=" in out
    assert "(default: false)" in out
    assert invoke(entry="report").out == out
