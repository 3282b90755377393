"""gyral.plot: figures of the frames of gyral.list_runs."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

import gyral
from gyral.core.errors import UserError
from gyral.plotting.style import cell_styles
from tests.helpers.written import write_run
from tests.reports.plots.test_lines import write_own


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for rate, seed, accuracy in ((0.001, 1, 0.9), (0.001, 2, 0.7), (0.01, 1, 0.5)):
        write_own(tmp_path, "gru", {"optimizer.lr": rate}, seed, accuracy)
    write_own(tmp_path, "lstm", {"optimizer.lr": 0.001}, 1, 0.2)
    write_own(tmp_path, "lstm", {"optimizer.lr": 0.01}, 1, 0.4)
    return tmp_path


def test_an_option_is_an_axis(runs: Path) -> None:
    figure = gyral.plot(gyral.list_runs(runs, options=["optimizer.lr"]), x="optimizer.lr", save=runs / "rates.pdf")
    [axes] = figure.axes
    gru, lstm = (line.get_xydata() for line in axes.lines)
    np.testing.assert_allclose(gru, [[0.001, 80], [0.01, 50]])
    np.testing.assert_allclose(lstm, [[0.001, 20], [0.01, 40]])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["GRU", "LSTM"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()) == ("learning rate", "test accuracy (%)", "log")
    assert (runs / "rates.pdf").stat().st_size > 1000
    [axes] = gyral.plot(gyral.list_runs(runs, ["optimizer.lr"]), "optimizer.lr", log="none").axes
    assert axes.get_xscale() == "linear"


def test_rows_are_bars_without_an_axis(runs: Path) -> None:
    figure = gyral.plot(gyral.list_runs(runs), y="test/loss")
    [axes] = figure.axes
    assert next(text.get_text() for text in axes.get_yticklabels()) == "GRU, learning rate = 0.001"
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], [0.02] * 4)


def test_the_columns_of_a_table_are_an_axis(tmp_path: Path) -> None:
    for rate, accuracy in ((0.001, 0.5), (0.01, 0.75)):
        run = write_run(tmp_path, "robustness/copy/gru", f"optimizer.lr={rate}", accuracy=accuracy)
        (run / "config.yaml").write_text(f"seed: 1\noptimizer: {{lr: {rate}}}\n")
    [line] = gyral.plot(gyral.list_runs(tmp_path), x="column").axes[0].lines
    np.testing.assert_allclose(line.get_xydata(), [[0.001, 50], [0.01, 75]])


def test_wrong_arguments_are_refused(runs: Path) -> None:
    frame = gyral.list_runs(runs)
    for given, message in [
        ({"x": "optimizer.lr"}, r"x=optimizer.lr: is not a column of the runs; .*options=\['optimizer.lr'\]"),
        ({"x": "row"}, "x=row: must have numbers, not 'GRU, learning rate = 0.001'"),
        ({"y": "test/accuracyy"}, "y=test/accuracyy: must be one of monitor, test/loss"),
        ({"log": "z"}, "log=z: must be one of x, y, xy, none"),
        ({"save": "a.gif"}, "save=a.gif: must end in one of .pdf, .svg, .png"),
    ]:
        with pytest.raises(UserError, match=message):
            gyral.plot(frame, **given)
    with pytest.raises(UserError, match="no run is DONE"):
        gyral.plot(frame[frame.metric == "nothing"])
    with pytest.raises(UserError, match=r"are of the tasks recall, copy; choose one: runs\[runs.task == 'recall'\]"):
        gyral.plot(frame.assign(task=["recall", *["copy"] * (len(frame) - 1)]), y="monitor")


@pytest.mark.parametrize("x", [None, "optimizer.lr"])
def test_rows_have_the_color_of_their_cell_and_spreads_end_at_possible_values(tmp_path: Path, x: str | None) -> None:
    for model in ("gru", "lstm"):
        for seed, accuracy in ((1, 0.1), (2, 1.0)):
            write_own(tmp_path, model, {"optimizer.lr": 0.01}, seed, accuracy)
    [axes] = gyral.plot(gyral.list_runs(tmp_path, ["optimizer.lr"]), x).axes
    drawn = [one.get_color() for one in axes.lines if one.get_gid() == "row"] if x else axes.patches
    colors = [to_hex(one if x else one.get_facecolor()) for one in drawn]
    assert colors == [look["color"] for look in cell_styles(["GRU", "LSTM"])]
    ends = [path.vertices[:, int(x is not None)] for spread in axes.collections for path in spread.get_paths()]
    assert {(end.min(), end.max()) for end in ends} == {(0, 100)}
