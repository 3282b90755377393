"""The training losses of a sweep."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from gyral.reports.figures.loss_curves import line_style
from tests.helpers.running import invoke
from tests.helpers.written import FIG4, drawn, write_run


def test_curves_are_drawn_of_every_row_in_two_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, f"{FIG4}/lstm", accuracy=0.125)
    write_run(tmp_path, f"{FIG4}/lstm", seed=2, accuracy=0.125)
    write_run(tmp_path, f"{FIG4}/urnn", "optimizer.lr=0.1")
    (write_run(tmp_path, f"{FIG4}/goru") / "metrics.csv").unlink()
    figures = drawn(monkeypatch)
    outcome = invoke(f"sweep={tmp_path}", entry="report")
    assert outcome.status == 0, outcome.err
    assert f"Drew {tmp_path / 'loss_curves.png'}\n" in outcome.out
    upper, lower = figures[0].axes
    assert (upper.get_yscale(), lower.get_yscale()) == ("log", "linear")
    assert lower.get_ylim() == (0, 1.6)
    assert lower.get_xlabel() == "optimizer steps"
    assert upper.get_ylabel() == lower.get_ylabel() == "training loss (nats)"
    assert "mean of 5 steps" in figures[0].get_suptitle()
    legend = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert legend == ["LSTM", "uRNN\noptimizer.lr=0.1 (not done)", "memoryless baseline"]
    for axes in (upper, lower):
        both, other, baseline = axes.lines
        seeds = np.split(both.get_xdata(), [9])
        assert [list(steps[:-1]) for steps in seeds] == [[5, 10, 15, 20, 25, 30, 35, 40]] * 2
        assert all(np.isnan(steps[-1]) for steps in seeds)
        assert list(both.get_ydata())[:2] == [1, 0.5]
        assert set(baseline.get_ydata()) == {0.8}
        look = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in (both, other)]
        assert all(here != there for here, there in zip(*look, strict=True))
    assert re.search(r"LSTM +0\.0200 +0\.5000 +12\.5 ± 0\.0  stays at the baseline", outcome.out)
    assert "unfinished at step 40" in outcome.out


def test_no_two_curves_look_alike() -> None:
    looks = [tuple(line_style(index).values()) for index in range(180)]
    assert len(set(looks)) == 180
    assert len({look[:2] for look in looks[:20]}) == 20, "color and line style alone"


@pytest.mark.parametrize(
    "losses",
    [
        "step\n",
        "step,train/loss,train/baseline\n4,nan,0.8\n",
        "step,train/loss\n4,0.0\n9,inf\n",
        "step,train/loss,train/baseline\n4,0.5,0.8\n9,nan,0.8\n14,0.0,0.8\n19,0.25,0.8\n",
    ],
    ids=["empty", "not finite", "zero", "mixed"],
)
def test_curves_are_drawn_of_any_metrics(tmp_path: Path, losses: str) -> None:
    write_run(tmp_path, f"{FIG4}/lstm", losses=losses)
    assert invoke(f"sweep={tmp_path}", entry="report").status == 0
    assert image.imread(tmp_path / "loss_curves.png").shape[2] == 4
    assert (tmp_path / "loss_curves.pdf").read_bytes().startswith(b"%PDF")
