"""The loss around the phases of a run."""

import numpy as np
import pytest
import torch

from gyral.cells.rum import RUMCell
from gyral.figures import landscape
from gyral.figures.common import cells_of
from gyral.figures.landscape import PLANE, RANGE, Landscape, loss_line, loss_plane, phases_of, plane_losses
from gyral.runs.directory import Run, load_run
from gyral.training import build


@pytest.mark.parametrize("name", ["directory", pytest.param("goru", marks=pytest.mark.slow)])
def test_the_lines_meet_at_the_loss_of_the_first_batch_of_training(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landscape, "LINE", landscape.LINE[::10])
    monkeypatch.setattr(landscape, "BETWEEN", landscape.BETWEEN[::10])
    run = load_run(request.getfixturevalue(name))
    task, _ = build.load_trained(run, "best")
    batch = next(iter(task.data.loader("train")))
    with torch.no_grad():
        loss = task.eval().loss(task(batch), batch).item()
    around, between = loss_line(run).axes
    *lines, baseline = around.lines
    assert len(lines) == 5
    for line in lines:
        distances, losses = line.get_xydata().T
        assert losses[distances.tolist().index(0)] == pytest.approx(loss, abs=1e-6)
        assert (losses > 0).all()
    ends = [line.get_ydata()[0] for line in lines]
    assert len(set(ends)) == 5
    assert baseline.get_ydata()[0] == pytest.approx(np.log(10))
    assert [(line.get_xdata()[0], line.get_xdata()[-1]) for line in between.lines[:5]] == [(0, 1)] * 5


def test_the_loss_between_two_sets_of_phases_equals_that_of_their_mean(run: Run) -> None:
    landscape = Landscape(run)
    first, second = landscape.random_phases(0), landscape.random_phases(1)
    assert all(phase.abs().max() <= RANGE for phase in first)
    assert all(phase.abs().max() > RANGE / 2 for phase in first if phase.numel() > 20)
    middle = [one / 4 + 3 * two / 4 for one, two in zip(first, second, strict=True)]
    assert landscape.loss_between(0.75, first, second) == pytest.approx(landscape.loss_at(middle), rel=1e-5)
    assert landscape.loss_between(0.0, first, second) == landscape.loss_at(first)


def test_the_planes_axes_are_the_first_two_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landscape, "LINE", landscape.LINE[::5])
    monkeypatch.setattr(landscape, "PLANE", landscape.PLANE[::5])
    losses = plane_losses(Landscape(run))
    first, second = (line.get_ydata() for line in loss_line(run).axes[0].lines[:2])
    assert losses[2].tolist() == pytest.approx(first[::2], abs=1e-6)
    assert losses[:, 2].tolist() == pytest.approx(second[::2], abs=1e-6)


def test_the_plane_is_drawn_the_right_way_round(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rising = np.tile(PLANE, (21, 1))  # along direction 0
    monkeypatch.setattr(landscape, "plane_losses", lambda landscape: rising)
    flat, _, raised = sorted(loss_plane(run).axes, key=lambda axes: axes.name == "3d")
    bands = [path.get_extents() for path in flat.collections[0].get_paths() if len(path)]
    assert len(bands) > 10
    assert all(band.width < 0.2 and band.height == 2 for band in bands)
    assert raised.get_zlim() == pytest.approx((-1, 1), abs=0.1)


def test_a_direction_moves_the_phases_by_their_norm(run: Run) -> None:
    landscape = Landscape(run)
    cell = landscape.task.model.recurrent.cells[0]
    trained = {name: value.clone() for name, value in landscape.task.state_dict().items()}
    direction = landscape.direction(3)
    assert [change.shape for change in direction] == [(8, 8), (8, 13), (8,), (8, 13)]
    phases = cell.weight_hh[:8], cell.weight_ih[:8], cell.bias[:8], cell.weight_ih[16:]
    for change, rows in zip(direction, phases, strict=True):
        assert change.norm().item() == pytest.approx(rows.norm().item(), rel=1e-6)
    assert all(torch.equal(one, two) for one, two in zip(direction, landscape.direction(3), strict=True))
    assert abs(torch.corrcoef(torch.stack((direction[1].ravel(), landscape.direction(4)[1].ravel())))[0, 1]) < 0.4

    moved = landscape.loss((0.5, direction), (-0.25, landscape.direction(4)))
    assert all(torch.equal(value, trained[name]) for name, value in landscape.task.state_dict().items())
    with torch.no_grad():
        for rows, one, two in zip(phases, direction, landscape.direction(4), strict=True):
            rows += 0.5 * one - 0.25 * two
        task = landscape.task
        loss = task.loss(task(landscape.batch), landscape.batch).item()
    assert moved == pytest.approx(loss, abs=1e-6)


def test_the_phases_of_a_cell_within_a_cell_are_moved_too(run: Run) -> None:
    task = build.build_task(run.config)
    cell = task.model.recurrent.cells[0]
    cell.inner = RUMCell(3, 4)
    assert cells_of(task) == [cell, cell.inner]
    expected = [*cell.phases(), *cell.inner.phases()]
    assert [phase.shape for phase in phases_of(task)] == [phase.shape for phase in expected]
