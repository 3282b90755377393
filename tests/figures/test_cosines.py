"""The figure of cosines."""

from pathlib import Path

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.figures.cosines import cosines, read_cosines
from gyral.report import draw_figure as draw
from gyral.runs.directory import Run, load_run


def test_cosines_are_drawn_as_they_were_recorded(run: Run) -> None:
    figure = cosines(run)
    steps, centres, shares = read_cosines(run.directory)
    assert steps == [8, 16, 24]
    mesh = figure.axes[0].collections[0]
    assert np.array_equal(mesh.get_array(), shares.T)
    assert np.array_equal(mesh.get_coordinates()[0, :, 0], [4, 12, 20, 28]), "half way to the other validations"
    for axes, row, step in zip(figure.axes[2:], shares, steps, strict=True):
        assert axes.get_title() == f"step {step}"
        assert [bar.get_height() for bar in axes.patches] == row.tolist()
        assert [bar.get_x() + bar.get_width() / 2 for bar in axes.patches] == pytest.approx(centres.tolist())


def test_one_validation_is_enough_to_draw(run: Run, tmp_path: Path) -> None:
    for name in ("config.yaml", "cosines.csv"):
        lines = (run.directory / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:2] if name == "cosines.csv" else lines))
    figure = cosines(load_run(tmp_path))
    [histogram] = figure.axes  # a heat map would show one recording at steps without one
    assert histogram.get_title() == "step 8"


def test_a_run_without_cosines_names_the_callback(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((run.directory / "config.yaml").read_text())
    with pytest.raises(
        OptionError, match=r"has no cosines\.csv, which is recorded by training with callbacks=cosines$"
    ):
        draw("cosines", tmp_path)
    (tmp_path / "cosines.csv").write_text("step\n")
    with pytest.raises(OptionError, match=r"stopped before its first validation; cosines\.csv is empty$"):
        draw("cosines", tmp_path)
