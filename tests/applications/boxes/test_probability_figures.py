"""The figures of overlaps and of conditional probabilities."""

from pathlib import Path

import numpy as np
import pytest
import torch

from gyral.applications.boxes.probability_figures import conditionals, log_overlaps, overlaps, table, true_table
from gyral.core.errors import OptionError
from gyral.figures.drawing import takes_several
from gyral.plotting.style import style
from gyral.runs.directory import Run, load_run
from gyral.training import build
from tests.helpers.figure_checks import check_figure
from tests.helpers.running import SMALL, invoke

LATTICE = (
    *(item for item in SMALL if not item.startswith(("model.", "task"))),
    *("task=lattice", "model.dimension=2", "optimizer=adam", "optimizer.lr=0.01"),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    directory = tmp_path_factory.mktemp("runs")
    for model in ("poe", "smoothed_box"):
        assert invoke(*LATTICE, f"model={model}", f"hydra.run.dir={directory / model}").status == 0
    return [load_run(directory / model) for model in ("poe", "smoothed_box")]


def test_overlaps_by_distance(runs: list[Run]) -> None:
    found = log_overlaps(torch.tensor([0.0, 0.5, 2.0]), 1.0)
    assert found["hinge"].exp().tolist() == pytest.approx([1, 0.5, 0], abs=1e-6)
    sides = torch.tensor([1.0, 0.5, -1.0])
    assert found["softplus"].exp().tolist() == pytest.approx(torch.nn.functional.softplus(sides).tolist())
    normal = torch.distributions.Normal(0.0, 1.0)
    gaussian = sides * normal.cdf(sides) + normal.log_prob(sides).exp()
    assert found["Gaussian"].exp().tolist() == pytest.approx(gaussian.tolist())
    with style():
        figure = overlaps(runs[1])
        check_figure(figure)
    assert [line.get_label() for line in figure.axes[0].lines] == ["hinge", "Gaussian", "softplus"]
    with pytest.raises(OptionError, match="the figure needs a temperature"):
        overlaps(runs[0])


def test_conditional_probabilities_of_two_runs_are_beside_the_true_ones(runs: list[Run]) -> None:
    assert takes_several(conditionals)
    with style():
        figure = conditionals(*runs)
        check_figure(figure)
    assert [axes.get_title() == "true" for axes in figure.axes] == [True, False, False]
    task, _ = build.load_trained(runs[1], "best")
    true, model = true_table(task, [*range(8)]), table(task, [*range(8)])
    wolf, predator, animal = (task.names.index(name) for name in ("wolf", "predator", "animal"))
    assert (true[wolf, predator], true[predator, wolf], true[animal, wolf]) == (1, 0.5, 0.25)
    assert model[wolf, predator] == pytest.approx(task.model(torch.tensor([predator, wolf])).exp().item())
    assert np.isnan(np.diag(true)).all()


def test_runs_of_other_concepts_are_refused(runs: list[Run], tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert invoke(*LATTICE, "model=poe", "task.root=animal", f"hydra.run.dir={other}").status == 0
    with pytest.raises(OptionError, match="must have the same concepts"):
        conditionals(runs[0], load_run(other))
