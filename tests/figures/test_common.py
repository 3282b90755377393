"""Titles of figures."""

from pathlib import Path

from matplotlib.figure import Figure

from gyral.figures.common import add_title
from gyral.runs.directory import Run
from tests.helpers.running import compose_config


def test_a_title_has_readable_names_and_fits(tmp_path: Path) -> None:
    config = compose_config("model=rum", "task=recall", "model.cell.lambd=1.0", "model.cell.layer_norm=true")
    figure = Figure(figsize=(3.25, 2))
    add_title(figure, Run(tmp_path, config), "cos θ between the embedded input and the memory target")
    assert figure.get_suptitle().splitlines() == [
        "RUM λ = 1, layer norm on recall",
        "cos θ between the embedded input and the memory",
        "target",
    ]
