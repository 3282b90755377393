"""Plots over the columns of a sweep, such as learning rates; those over groups are in tests/applications/logic."""

import json
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from gyral.core.measures import percentage
from gyral.runs.measures import write_measures
from tests.helpers.running import invoke
from tests.helpers.written import MEASURES, REMARKS, drawn, write_run

COPY = "robustness/copy"


def write_rate(directory: Path, row: str, rate: float, seed: int, accuracy: float) -> None:
    run = write_run(directory, f"{COPY}/{row}", f"optimizer.lr={rate}", seed=seed, accuracy=accuracy)
    (run / "config.yaml").write_text(OmegaConf.to_yaml({"seed": seed, "optimizer": {"lr": rate}}))


def test_a_line_has_the_mean_of_each_learning_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rate, seed, accuracy in ((0.001, 1, 0.9), (0.001, 2, 0.7), (0.01, 1, 0.5)):
        write_rate(tmp_path, "gru", rate, seed, accuracy)
    write_rate(tmp_path, "lstm", 0.01, 1, 0.25)
    figures = drawn(monkeypatch)
    for seeds, count in (("deviation", 2), ("all", 3)):
        given = (f"sweep={tmp_path}", f"save={tmp_path}/rates.pdf", "plot=columns", "log=x", f"seeds={seeds}")
        outcome = invoke(*given, entry="report")
        assert outcome.status == 0, outcome.err
        [axes] = figures[-1].axes
        assert len([line for line in axes.lines if line.get_gid() == "row"]) == count
    [axes] = figures[0].axes
    gru, lstm = (line.get_xydata() for line in axes.lines if line.get_gid() == "row")
    np.testing.assert_allclose(gru, [[0.001, 80], [0.01, 50]])
    np.testing.assert_allclose(lstm, [[0.01, 25]])
    assert (axes.get_xlabel(), axes.get_xscale()) == ("learning rate", "log")


def test_a_sweep_without_numbers_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "digits/gru", "task.permuted=true", accuracy=0.5)
    outcome = invoke(f"sweep={tmp_path}", f"save={tmp_path}/rates.pdf", "plot=columns", entry="report")
    assert outcome.status != 0
    assert "plot=columns: needs runs that differ in an option whose values are numbers" in outcome.err
    assert not (tmp_path / "rates.pdf").exists()


def write_own(directory: Path, model: str, options: dict[str, float], seed: int, accuracy: float) -> None:
    """Write a run that belongs to no table."""
    words = [f"{key}={value}" for key, value in options.items()]
    run = write_run(directory, model, *words, seed=seed, accuracy=accuracy)
    given = [f"model={model}", f"seed={seed}", *words]
    (run / "overrides.yaml").write_text(OmegaConf.to_yaml(given))
    config = OmegaConf.create({"seed": seed, "task": {"_target_": "gyral.tasks.recall.RecallTask"}})
    config.model = {"cell": {"_target_": f"gyral.cells.{model}.{model.upper()}Cell"}}
    for key, value in options.items():
        OmegaConf.update(config, key, value, force_add=True)
    (run / "config.yaml").write_text(OmegaConf.to_yaml(config))


def test_any_option_that_runs_vary_is_an_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for model, rate, seed, accuracy in (
        *(("gru", 0.001, 1, 0.9), ("gru", 0.001, 2, 0.7), ("gru", 0.01, 1, 0.5)),
        *(("lstm", 0.001, 1, 0.2), ("lstm", 0.01, 1, 0.4)),
    ):
        write_own(tmp_path, model, {"optimizer.lr": rate}, seed, accuracy)
    figures = drawn(monkeypatch)
    given = (f"sweep={tmp_path}", f"save={tmp_path}/rates.pdf", "plot=columns")
    for words in ((), ("x=optimizer.lr",), ("log=none",)):
        outcome = invoke(*given, *words, entry="report")
        assert outcome.status == 0, outcome.err
    for figure, scale in zip(figures, ("log", "log", "linear"), strict=True):
        [axes] = figure.axes
        gru, lstm = (line.get_xydata() for line in axes.lines if line.get_gid() == "row")
        np.testing.assert_allclose(gru, [[0.001, 80], [0.01, 50]])
        np.testing.assert_allclose(lstm, [[0.001, 20], [0.01, 40]])
        assert (axes.get_xlabel(), axes.get_xscale()) == ("learning rate", scale)
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["GRU", "LSTM"]


def test_one_of_several_options_must_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rate in (0.001, 0.002):
        for clip in (1, 2):
            write_own(tmp_path, "gru", {"optimizer.lr": rate, "trainer.gradient_clip_val": clip}, 1, rate * 100 * clip)
    figures = drawn(monkeypatch)
    given = (f"sweep={tmp_path}", f"save={tmp_path}/rates.pdf", "plot=columns")
    error = invoke(*given, entry="report").error
    assert error == "x=<nothing>: must be one of optimizer.lr, trainer.gradient_clip_val, which the runs vary"
    assert invoke(*given, "x=optimizer.lr", entry="report").status == 0
    [axes] = figures[-1].axes
    assert axes.get_xscale() == "linear"  # over a factor of 2
    lines = [line.get_xydata() for line in axes.lines if line.get_gid() == "row"]
    np.testing.assert_allclose(lines, [[[0.001, 10], [0.002, 20]], [[0.001, 20], [0.002, 40]]])
    error = invoke(*given, "x=optimizer.eps", entry="report").error
    assert error.startswith("x=optimizer.eps: needs runs that differ in an option whose values are numbers")


def test_the_guess_and_the_values_that_were_run_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rate, accuracy in ((0.0003, 0.2), (0.001, 0.4), (0.003, 0.5)):
        write_own(tmp_path, "gru", {"optimizer.lr": rate}, 1, accuracy)
    guess = percentage("guessed", "guess among the digits", at_end=True, floor_of="accuracy")
    for done in tmp_path.rglob("DONE"):
        write_measures(done.parent, (*MEASURES, guess), REMARKS)
        done.write_text(json.dumps({**json.loads(done.read_text()), "test/guessed": 0.45}))
    figures = drawn(monkeypatch)
    assert invoke(f"sweep={tmp_path}", f"save={tmp_path}/a.pdf", "plot=columns", entry="report").status == 0
    [axes] = figures[0].axes
    [line] = [line for line in axes.lines if line.get_gid() == "guess"]
    np.testing.assert_allclose(line.get_ydata(), 45)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.0003", "0.001", "0.003"]
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["GRU", "guess among the digits"]


def test_a_guess_that_an_option_of_the_task_changes_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guess = percentage("guessed", "guess", at_end=True, floor_of="accuracy")
    for length in (4, 6, 8):
        write_own(tmp_path, "gru", {"task.length": length}, 1, 0.5)
    for done in tmp_path.rglob("DONE"):
        length = OmegaConf.load(done.parent / "config.yaml").task.length
        write_measures(done.parent, (*MEASURES, guess), REMARKS)
        done.write_text(json.dumps({**json.loads(done.read_text()), "test/guessed": 1 / length}))
    figures = drawn(monkeypatch)
    assert invoke(f"sweep={tmp_path}", f"save={tmp_path}/a.pdf", "plot=columns", entry="report").status == 0
    [line] = [line for line in figures[0].axes[0].lines if line.get_gid() == "guess"]
    np.testing.assert_allclose(line.get_xydata(), [[4, 25], [6, 100 / 6], [8, 12.5]])
