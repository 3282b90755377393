"""Plots over the columns of a sweep, such as learning rates; those over groups are in tests/applications/logic."""

from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from tests.helpers.running import invoke
from tests.helpers.written import drawn, write_run

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
    assert "plot=columns: needs a sweep whose column has numbers, such as learning rates" in outcome.err
    assert not (tmp_path / "rates.pdf").exists()
