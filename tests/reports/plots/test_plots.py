"""Plots of several runs: curves, parameters against score, and bars."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import rgb_to_hsv, to_hex, to_rgb
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from gyral.core.measures import percentage
from gyral.plotting.style import (
    CELL_ORDER,
    COLORS,
    MARKERS,
    OWN_COLORS,
    cell_styles,
    column_counts,
    format_tick,
    style,
)
from gyral.reports.plots.curves import default_metrics
from gyral.reports.plots.drawing import DRAW, plot
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import Panel, Series, make_panels
from gyral.reports.sweep_report import collect
from gyral.runs.measures import write_measures
from gyral.runs.run_record import Curve, Log, RunRecord
from tests.helpers.figure_checks import check_figure
from tests.helpers.running import invoke
from tests.helpers.written import MEASURES, PROVENANCE, REMARKS, RESULTS, TABLE1, write_run

CELLS = {"rum": "gyral.cells.rum.RUMCell", "gru": "gyral.cells.gru.GRUCell", "lstm": "gyral.cells.lstm.LSTMCell"}
CELLS["leaky"] = "leaky.LeakyCell"  # of a user
STEPS = np.arange(50, 301, 50)


def write(
    directory: Path,
    model: str,
    seed: int,
    accuracies: Sequence[float],
    *overrides: str,
    parameters: int = 9_000,
    state: str = "DONE",
) -> Path:
    """Write a run of recall whose validation accuracy is given after every 50 steps, with its speed."""
    run = directory / f"{model},{seed},{','.join(overrides)}"
    run.mkdir(parents=True)
    given = [f"model={model}", "task=recall", f"seed={seed}", *overrides]
    (run / "overrides.yaml").write_text(OmegaConf.to_yaml(given))
    lengths = dict(word.removeprefix("task.").split("=") for word in overrides if word.startswith("task.length"))
    task = {"_target_": "gyral.tasks.recall.RecallTask", "monitor": "val/accuracy", **lengths}
    node = {"seed": seed, "task": task, "model": {"cell": {"_target_": CELLS[model]}}}
    (run / "config.yaml").write_text(OmegaConf.to_yaml(node))
    lines = ["step,train/loss,train/baseline,train/seconds_a_step,train/tokens_a_second,val/accuracy"]
    for step, accuracy in zip(STEPS, accuracies, strict=False):
        lines += [f"{step - 1},{2 - accuracy},2.3,0.5,1000,", f"{step - 1},,,,,{accuracy}"]
    (run / "metrics.csv").write_text("\n".join(lines) + "\n")
    write_measures(run, MEASURES, REMARKS)
    (run / "provenance.json").write_text(json.dumps(PROVENANCE))
    if state == "DONE":
        results = {**RESULTS, "test/accuracy": accuracies[-1], "parameters": parameters, "steps": int(STEPS[-1])}
        (run / "DONE").write_text(json.dumps(results))
    elif state == "FAILED":
        (run / "FAILED").write_text("ValueError: no\n")
    return run


def curve(last: float, seed: int) -> np.ndarray:
    return np.linspace(0.1, last, len(STEPS)) + 0.01 * np.random.default_rng(seed).random(len(STEPS))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rows; one run of the second row failed, and one of the third row is unfinished."""
    directory = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        write(directory, "rum", seed, curve(0.95, seed), parameters=9_000)
        failed = seed == 3
        write(directory, "gru", seed, curve(0.35, seed)[: 2 if failed else None], state="FAILED" if failed else "DONE")
        late = seed == 2
        write(directory, "lstm", seed, curve(0.3, seed)[: 4 if late else None], state="late" if late else "DONE")
    return directory


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows of a paper's table at two lengths."""
    directory = tmp_path_factory.mktemp("table")
    for row, accuracy in (("lstm", 0.3), ("rum_lambda1", 0.9)):
        for length in (30, 50):
            for seed in (1, 2):
                write_run(directory, f"{TABLE1}/{row}", seed=seed, length=length, accuracy=accuracy + 0.02 * seed)
    return directory


def panels_of(where: Path) -> list[Panel]:
    return make_panels(collect(str(where))[0])


def drawn(where: Path, *, checked: bool = True, **options: Any) -> Figure:
    """Return a figure of runs, checked as every figure is unless other figures of its kind are."""
    chosen = Options(**options)
    with style():
        figure = DRAW[chosen.plot](panels_of(where), chosen)
        if checked:
            check_figure(figure)
    return figure


def test_a_line_is_the_mean_and_a_band_the_standard_deviation(runs: Path) -> None:
    [axes] = drawn(runs).axes
    wanted = 100 * np.array([curve(0.95, seed) for seed in (1, 2, 3)])
    lines = [line for line in axes.lines if line.get_gid() == "row"]
    highest = max(lines, key=lambda line: line.get_ydata()[-1])
    assert highest.get_xdata() == pytest.approx(STEPS)
    assert highest.get_ydata() == pytest.approx(wanted.mean(axis=0))
    band = max(axes.collections, key=lambda one: one.get_datalim(axes.transData).y1)
    edges = {tuple(np.round(vertex, 6)) for vertex in band.get_paths()[0].vertices}
    for step, mean, deviation in zip(STEPS, wanted.mean(axis=0), wanted.std(axis=0, ddof=1), strict=True):
        assert {(step, np.round(mean - deviation, 6)), (step, np.round(mean + deviation, 6))} <= edges
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 3


def test_runs_that_failed_or_are_shorter_are_named(runs: Path) -> None:
    figure = drawn(runs, checked=False)
    texts = {text.get_text().split(" (")[0]: text.get_text() for text in figure.legends[0].get_texts()}
    assert texts["GRU"] == "GRU (1 failed of 3)"
    assert texts["LSTM"] == "LSTM (1 unfinished of 3)"
    [axes] = figure.axes
    gru_line, lstm_line, _ = (line for line in axes.lines if line.get_gid() == "row")
    gru = 100 * np.array([curve(0.35, seed) for seed in (1, 2)]).mean(axis=0)
    lstm = 100 * np.array([curve(0.3, seed)[:4] for seed in (1, 2, 3)]).mean(axis=0)
    assert gru_line.get_ydata() == pytest.approx(gru), "without the failed run"
    assert lstm_line.get_ydata() == pytest.approx(lstm), "up to the end of the shortest run"
    rest = [list(line.get_xdata()) for line in axes.lines if line.get_gid() is None]
    assert rest == [[200, 250, 300]] * 2, "the other two runs continue"


@pytest.mark.parametrize(("axis", "factor"), [("tokens", 500), ("time", 0.5)])
def test_the_x_axis_can_be_tokens_or_time(runs: Path, axis: str, factor: float) -> None:
    [axes] = drawn(runs, checked=axis == "time", x=axis, y="train/loss", log="y", width="page", seeds="all").axes
    assert axes.get_xlabel() == {"tokens": "tokens", "time": "training time (seconds)"}[axis]
    assert axes.get_ylabel() == "training loss (nats)"
    assert axes.get_yscale() == "log"
    lines = [line for line in axes.lines if len(line.get_xdata()) > 1 and line.get_gid() != "baseline"]
    assert len(lines) == 9
    assert lines[0].get_xdata() == pytest.approx(factor * STEPS)
    assert [line.get_ydata()[0] for line in axes.lines if line.get_gid() == "baseline"] == [2.3]


def test_the_values_of_a_column_are_panels(table: Path, tmp_path: Path) -> None:
    figure = drawn(table, plot="bars", width="page", seeds="all")
    assert [axes.get_title() for axes in figure.axes] == ["length = 30", "length = 50"]
    left = figure.axes[0]
    assert [label.get_text() for label in left.get_yticklabels()] == ["LSTM", "RUM λ = 1, η none"]
    assert [bar.get_width() for bar in left.patches] == pytest.approx([33, 93])
    assert [text.get_text() for text in left.texts] == ["33.0 ± 1.4", "93.0 ± 1.4"]
    published = [line.get_xdata()[0] for line in left.lines if line.get_marker() == "D"]
    assert published == [25.6, 100]
    for length in (6, 10):
        write(tmp_path, "gru", 1, [0.1, 0.2], f"task.length={length}")
    assert [panel.title for panel in panels_of(tmp_path)] == [
        "length = 6",
        "length = 10",
    ]


def test_parameters_are_shown_beside_published_ones(table: Path) -> None:
    figure = drawn(table, plot="parameters", width="page")
    marks = [line.get_xydata()[0] for line in figure.axes[1].lines if line.get_markerfacecolor() == "white"]
    assert [tuple(mark) for mark in marks] == [(17_000, 20.5), (13_000, 100)]
    points = [container.lines[0].get_xydata()[0] for container in figure.axes[1].containers]
    assert [list(point) for point in points] == [pytest.approx([12_050, 33]), pytest.approx([12_050, 93])]


def test_files_are_reproducible_and_have_text(runs: Path, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    frames = collect(str(runs))[0]
    for name in ("a.pdf", "b.pdf", "a.svg"):
        description = plot(tmp_path / name, "sweep", frames, Options())
    assert description == "validation accuracy (%), training step; mean and standard deviation of 3 seeds"
    assert dict(matplotlib.rcParams) == before
    picture = (tmp_path / "a.svg").read_text()
    assert "validation accuracy (%)</text>" in picture
    assert "<dc:title>Runs on recall</dc:title>" in picture
    assert "<dc:date>" not in picture
    content = (tmp_path / "a.pdf").read_bytes()
    assert content == (tmp_path / "b.pdf").read_bytes()
    assert b"/CIDFontType2" in content
    assert b"/Type3" not in content
    assert b"/Title" in content
    assert b"CreationDate" not in content


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["y=val/none"], r"y=val/none: no run has logged it; there are .*train/loss, .*val/accuracy"),
        (["plot=bars", "y=test/none"], "y=test/none: no run has this result; available: test/accuracy, test/loss, .*"),
        (["x=epoch"], "x=epoch: must be one of step, tokens, time"),
        (["plot=bars", "x=time"], "x=time: is an option of plot=curves and plot=columns, not of plot=bars"),
        (["plot=bars", "log=y"], "log=y: is not possible with plot=bars: a bar begins at 0"),
        (["plot=pie"], "plot=pie: must be one of curves, parameters, bars, groups, columns, losses, heatmap, lengths"),
        (["log=z"], "log=z: must be one of x, y, xy, none"),
        (["width=3"], "width=3: must be one of column, page"),
        (["save=a.gif"], r"save=a\.gif: must end in one of .*\.pdf, \.svg, \.png"),
        (["save=/dev/null/a.pdf"], ".*Not a directory|.*File exists"),
        (["save=a.csv", "log=y"], r"log=y: draws nothing without save=<file>, which ends in one of \.pdf, .*"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_is_one_line(
    arguments: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("gru", "lstm"):
        write(tmp_path / "runs", model, 1, curve(0.5, 1))
    monkeypatch.chdir(tmp_path)
    default = [] if any(word.startswith("save=") for word in arguments) else ["save=[a.csv,a.pdf]"]
    outcome = invoke("sweep=runs", *default, *arguments, entry="report")
    assert re.fullmatch(error, outcome.error)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_legend_has_few_rows_and_no_row_of_one_entry() -> None:
    assert column_counts(3) == [3, 2, 1]
    assert column_counts(4)[:2] == [4, 2]
    assert column_counts(7)[:2] == [7, 4]
    assert set(column_counts(13)) == {13, 7, 5, 4, 3, 2, 1}


def test_ticks_are_short() -> None:
    assert [format_tick(value, 5000) for value in (0, 0.05, 250, 2000, -1)] == ["0", "0.05", "250", "2,000", "−1"]
    assert [format_tick(value, 1e6) for value in (0, 5e3, 2e5, 1e6)] == ["0", "5k", "200k", "1M"]
    assert [format_tick(value, 1) for value in (1e-5, 2e-4, 0.001)] == ["10⁻⁵", "2·10⁻⁴", "0.001"]


def test_a_cell_has_the_same_color_and_marker_in_all_figures() -> None:
    first, second = cell_styles(["GRU", "LSTM", "RUM"]), cell_styles(["RUM", "EURNN", "GRU"])
    assert first[0] == second[2]
    assert first[2] == second[0]
    signs = [(look["color"], str(look["linestyle"]), look["marker"]) for look in cell_styles(list(CELL_ORDER))]
    assert len({*signs}) == len(CELL_ORDER)
    assert len({color for color, _, _ in signs[:10]}) == 10
    assert len({marker for _, _, marker in signs[:9]}) == 9


def test_rows_of_one_cell_differ_in_another_sign() -> None:
    plain, other, gru = cell_styles(["RUM", "RUM", "GRU"])
    assert len({plain["color"], other["color"], gru["color"]}) == 3
    assert plain["linestyle"] != other["linestyle"]
    assert plain["marker"] != other["marker"]
    assert cell_styles(["Mine", "GRU"])[0] == cell_styles(["LSTM", "Mine"])[1]


def test_limits_contain_bands_and_nothing_is_beyond_its_bounds(tmp_path: Path) -> None:
    for seed, last in ((1, 0.2), (2, 1.0)):
        write(tmp_path, "rum", seed, [0.1, 0.1, last, last, last, last])
    figure = drawn(tmp_path)
    (axes,) = figure.axes
    band = axes.collections[0].get_paths()[0].vertices
    assert 0 <= band[:, 1].min() < band[:, 1].max() <= 100
    low, high = axes.get_ylim()
    assert low <= band[:, 1].min() < band[:, 1].max() <= high


@pytest.mark.parametrize("kind", ["bars", "parameters"])
def test_error_bars_end_at_possible_values_and_rows_have_the_color_of_their_cell(tmp_path: Path, kind: str) -> None:
    for model in ("gru", "rum"):
        for seed, last in ((1, 0.1), (2, 1.0)):
            write(tmp_path, model, seed, [last])
    (axes,) = drawn(tmp_path, plot=kind, checked=False).axes
    ends = np.array([segment for bar in axes.collections for segment in bar.get_segments()])
    assert ends.shape == (2, 2, 2)
    assert ends[..., int(kind == "parameters")].tolist() == [[pytest.approx(0), 100]] * 2
    shown = [bar.get_facecolor() for bar in axes.patches] or [
        line.get_color() for line in axes.lines if line.get_marker() in MARKERS
    ]
    assert [to_hex(color) for color in shown] == [look["color"] for look in cell_styles(["GRU", "RUM"])]


def test_a_cell_has_one_color_whatever_is_beside_it() -> None:
    known = cell_styles([*CELL_ORDER[:10]])
    assert cell_styles(["GRU"]) == [known[1]]
    assert cell_styles(["Leaky", "GRU"])[1] == known[1]
    for own in ("Leaky", "MGU", "FSRNN(LSTM, RUM)", "Other"):
        assert cell_styles([own])[0]["color"] in OWN_COLORS
        assert cell_styles(["GRU", own])[1] == cell_styles([own])[0]
    assert {*OWN_COLORS}.isdisjoint(COLORS)
    assert cell_styles(["Mamba2", "M2RNN", "PDSSM"]) == cell_styles(["Mamba-2", "M²RNN", "PD-SSM"])


def test_cells_of_users_have_different_colors_in_one_figure() -> None:
    several = ["Leaky", "MGU", "Mine", "Other", "Fast", "Slow"]
    looks = cell_styles(several)
    assert {look["color"] for look in looks} == {*OWN_COLORS}
    assert cell_styles(several[::-1]) == looks[::-1]


def test_a_cell_of_a_user_has_its_name_and_a_color_of_its_own(tmp_path: Path) -> None:
    for model in ("gru", "leaky"):
        write(tmp_path, model, 1, [0.5])
    (axes,) = drawn(tmp_path, plot="bars", checked=False).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["GRU", "Leaky"]
    first, second = (to_hex(bar.get_facecolor()) for bar in axes.patches)
    assert (first, second in OWN_COLORS) == (COLORS[1], True)


def test_rows_of_one_cell_are_shades_of_its_color_that_all_differ() -> None:
    looks = cell_styles(["GRU"] * 12)
    assert looks[0]["color"] == COLORS[1]
    hues = [rgb_to_hsv(to_rgb(look["color"]))[0] for look in looks]
    np.testing.assert_allclose(hues, hues[0], atol=0.02)
    assert len({(look["color"], str(look["linestyle"]), look["marker"]) for look in looks}) == 12


def test_all_plots_show_a_row_in_the_color_of_its_cell_and_name_the_guess_alike(runs: Path) -> None:
    guess, gru = percentage("guessed", "most frequent answer", at_end=True, floor_of="accuracy"), COLORS[1]
    for folder in runs.iterdir():
        write_measures(folder, (*MEASURES, guess), REMARKS)
        if (folder / "DONE").is_file():
            results = json.loads((folder / "DONE").read_text())
            (folder / "DONE").write_text(json.dumps({**results, "test/guessed": 0.3}))
    for kind in ("curves", "bars", "parameters"):
        figure = drawn(runs, plot=kind, checked=False)
        [axes] = figure.axes
        lines = [to_hex(line.get_color()) for line in axes.lines if line.get_gid() == "row"]
        bars = [to_hex(patch.get_facecolor()) for patch in axes.patches]
        assert gru in (bars if kind == "bars" else lines)
        assert "most frequent answer" in [text.get_text() for text in figure.legends[0].get_texts()]
        [line] = [line for line in axes.lines if line.get_gid() == "guess"]
        assert (line.get_linestyle(), line.get_linewidth()) == ("-", 0.7), "no row is thin and gray"


def test_panels_of_several_tasks_show_the_score_that_all_have() -> None:
    def panel(monitor: str, *logged: str) -> Panel:
        curves = {name: Curve([1], [0.5], 1, 1) for name in logged}
        config = {"seed": 1, "task": {"monitor": monitor}}
        return Panel("", [Series("GRU", {}, [RunRecord("nowhere", config, {}, None, read_log=lambda: Log(curves))])])

    both = ("val/loss", "val/accuracy")
    assert default_metrics([panel("val/loss", *both), panel("val/accuracy", *both)]) == ["val/accuracy"] * 2
    assert default_metrics([panel("val/loss", *both), panel("val/loss", *both)]) == ["val/loss"] * 2
    assert default_metrics([panel("val/mse", "val/mse"), panel("val/loss", *both)]) == ["val/mse", "val/loss"]
