"""The training losses of a sweep."""

import re
from pathlib import Path

import pytest

from gyral.plotting.style import line_style, style
from gyral.reports.plots.curves import draw_losses
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import make_panels
from gyral.reports.sweep_report import collect
from tests.helpers.figure_checks import check_figure
from tests.helpers.running import invoke
from tests.helpers.written import FIG4, drawn, write_run


def test_curves_are_drawn_of_every_row_in_two_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, f"{FIG4}/lstm", accuracy=0.125)
    write_run(tmp_path, f"{FIG4}/lstm", seed=2, accuracy=0.125)
    write_run(tmp_path, f"{FIG4}/urnn", "optimizer.lr=0.1")
    (write_run(tmp_path, f"{FIG4}/goru") / "metrics.csv").unlink()
    figures = drawn(monkeypatch)
    assert invoke(f"sweep={tmp_path}", entry="report").status == 0
    assert not [*tmp_path.glob("*.png")], "a report writes what is asked for alone"
    outcome = invoke(f"sweep={tmp_path}", f"save={tmp_path}/fig4.png", "plot=losses", "width=page", entry="report")
    assert outcome.status == 0, outcome.err
    assert f"Wrote {tmp_path / 'fig4.png'}: training loss (nats)" in outcome.out
    with style():
        check_figure(figures[0])
    left, right = figures[0].axes
    assert (left.get_yscale(), right.get_yscale()) == ("log", "linear")
    assert right.get_ylim() == (0, 1.6)
    assert [axes.get_title() for axes in (left, right)] == ["logarithmic", "linear, cut off at 2 × the baseline"]
    assert right.get_xlabel() == "training step"
    assert left.get_ylabel() == "training loss (nats)"
    legend = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert legend == ["LSTM", "uRNN, learning rate = 0.1 (unfinished)", "memoryless baseline (0.8)"]
    for axes in (left, right):
        both, other, baseline = axes.lines
        assert list(both.get_xdata()) == [5, 10, 15, 20, 25, 30, 35, 40]
        assert list(both.get_ydata())[:2] == [1, 0.5]
        assert set(baseline.get_ydata()) == {0.8}
        assert both.get_color() != other.get_color()
        assert both.get_linestyle() != other.get_linestyle()
    assert re.search(r"LSTM +0\.0200 +0\.5000 +12\.5 ± 0\.0  stays at the baseline", outcome.out)
    assert "unfinished at step 40" in outcome.out


def test_no_two_curves_look_alike() -> None:
    looks = [tuple(line_style(index).values()) for index in range(180)]
    assert len(set(looks)) == 180
    assert len({look[:2] for look in looks[:20]}) == 20, "color and line style alone"


@pytest.mark.parametrize(
    ("losses", "is_drawn"),
    [
        ("step\n", False),
        ("step,train/loss,train/baseline\n4,nan,0.8\n", False),
        ("step,train/loss\n4,0.0\n9,inf\n", True),
        ("step,train/loss,train/baseline\n4,0.5,0.8\n9,nan,0.8\n14,0.0,0.8\n19,0.25,0.8\n", True),
    ],
    ids=["empty", "not finite", "zero", "mixed"],
)
def test_curves_are_drawn_of_any_metrics(
    tmp_path: Path, losses: str, is_drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, f"{FIG4}/lstm", losses=losses)
    figures = drawn(monkeypatch)
    outcome = invoke(f"sweep={tmp_path}", f"save={tmp_path}/fig4.pdf", "plot=losses", entry="report")
    assert ("plot=losses: needs training losses" in outcome.err) is not is_drawn
    assert (tmp_path / "fig4.pdf").is_file() is bool(figures) is is_drawn


def test_many_rows_have_markers_at_different_places(tmp_path: Path) -> None:
    for row in ("lstm", "gru_100", "urnn", "eurnn", "goru", "rnn"):
        write_run(tmp_path, f"{FIG4}/{row}", accuracy=0.5)
    with style():
        panels = make_panels(collect(str(tmp_path))[0])
        figure = draw_losses(panels, Options("losses", width="page"))
        check_figure(figure)
    for axes in figure.axes:
        rows = [line for line in axes.lines if line.get_gid() == "row"]
        assert len({line.get_marker() for line in rows}) == 6
        assert all(line.get_markevery() for line in rows)
