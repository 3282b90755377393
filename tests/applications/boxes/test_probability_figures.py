"""The figures of overlaps and of conditional probabilities."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from gyral.applications.boxes.probability_figures import conditionals, log_overlaps, overlaps, table, true_table
from gyral.core.errors import OptionError
from gyral.figures.drawing import takes_several
from gyral.plotting.style import style
from gyral.runs.directory import Run, load_run
from gyral.training import build
from tests.helpers.figure_checks import check_figure
from tests.helpers.running import compose_config


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Run]]:
    """Runs of two models on a lattice, and one on other concepts, with the weights at their beginning."""
    options = {
        "poe": ("model=poe",),
        "smoothed_box": ("model=smoothed_box",),
        "other": ("model=poe", "task.root=animal"),
    }
    folder, made, tasks = tmp_path_factory.mktemp("runs"), [], {}
    for name, own in options.items():
        config = compose_config("task=lattice", "model.dimension=2", *own)
        (folder / name).mkdir()
        OmegaConf.save(config, folder / name / "config.yaml")
        made.append(load_run(folder / name))
        tasks[name] = (build.build_task(config).eval(), 24)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "load_trained", lambda run, _: tasks[run.directory.name])
        yield made


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
        figure = conditionals(*runs[:2])
        check_figure(figure)
    assert [axes.get_title() == "true" for axes in figure.axes] == [True, False, False]
    task, _ = build.load_trained(runs[1], "best")
    true, model = true_table(task, [*range(8)]), table(task, [*range(8)])
    wolf, predator, animal = (task.names.index(name) for name in ("wolf", "predator", "animal"))
    assert (true[wolf, predator], true[predator, wolf], true[animal, wolf]) == (1, 0.5, 0.25)
    assert model[wolf, predator] == pytest.approx(task.model(torch.tensor([predator, wolf])).exp().item())
    assert np.isnan(np.diag(true)).all()


def test_runs_of_other_concepts_are_refused(runs: list[Run]) -> None:
    with pytest.raises(OptionError, match=rf"^beside={runs[2].directory}: must have the same concepts"):
        conditionals(runs[0], runs[2])
