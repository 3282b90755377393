"""The loss around the phases of a run."""

import numpy as np
import pytest
import torch

from gyral.cells.rum import RUMCell
from gyral.figures import landscape
from gyral.figures.common import cells_of
from gyral.figures.landscape import BATCHES, PLANE, Landscape, loss_line, loss_plane, phases_of, plane_losses
from gyral.runs.directory import Run, load_run
from gyral.training import build
from tests.helpers.running import invoke


@pytest.mark.parametrize("name", ["directory", "goru"])
def test_the_lines_meet_at_the_loss_that_evaluation_gives(name: str, request: pytest.FixtureRequest) -> None:
    run = load_run(request.getfixturevalue(name))
    printed = invoke(f"run={run.directory}", "split=val", entry="evaluate")
    assert printed.status == 0, printed.err
    loss = next(float(row.split("│")[2]) for row in printed.out.splitlines() if "val/loss" in row)
    *lines, baseline = loss_line(run).axes[0].lines
    assert len(lines) == 5
    for line in lines:
        distances, losses = line.get_xydata().T
        assert losses[distances.tolist().index(0)] == pytest.approx(loss, abs=1e-6)
        assert (losses > 0).all()
    ends = [line.get_ydata()[0] for line in lines]
    assert len(set(ends)) == 5
    assert baseline.get_ydata()[0] == pytest.approx(np.log(10))


def test_the_planes_axes_are_the_first_two_lines(run: Run) -> None:
    losses = plane_losses(Landscape(run))
    first, second = (line.get_ydata() for line in loss_line(run).axes[0].lines[:2])
    assert losses[10].tolist() == pytest.approx(first[::2], abs=1e-6)
    assert losses[:, 10].tolist() == pytest.approx(second[::2], abs=1e-6)


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
    assert [change.shape for change in direction] == [(8, 8), (8, 13)]
    for change, rows in zip(direction, (cell.weight_hh[:8], cell.weight_ih[:8]), strict=True):
        assert change.norm().item() == pytest.approx(rows.norm().item(), rel=1e-6)
    assert all(torch.equal(one, two) for one, two in zip(direction, landscape.direction(3), strict=True))
    assert abs(torch.corrcoef(torch.stack((direction[1].ravel(), landscape.direction(4)[1].ravel())))[0, 1]) < 0.4

    moved = landscape.loss((0.5, direction), (-0.25, landscape.direction(4)))
    assert all(torch.equal(value, trained[name]) for name, value in landscape.task.state_dict().items())
    with torch.no_grad():
        for rows, one, two in zip((cell.weight_hh, cell.weight_ih), direction, landscape.direction(4), strict=True):
            rows[:8] += 0.5 * one - 0.25 * two
        task = landscape.task
        losses = [task.loss(task(batch), batch).item() for batch in task.data.loader("val")]
    assert moved == pytest.approx(np.mean(losses), abs=1e-6)  # two batches of the same size


def test_the_phases_of_a_cell_within_a_cell_are_moved_too(run: Run) -> None:
    task = build.build_task(run.config)
    cell = task.model.recurrent.cells[0]
    cell.inner = RUMCell(3, 4)
    assert cells_of(task) == [cell, cell.inner]
    expected = [*cell.phases(), *cell.inner.phases()]
    assert [phase.shape for phase in phases_of(task)] == [phase.shape for phase in expected]


def test_a_loss_is_taken_over_the_first_batches_alone(run: Run) -> None:
    run.config.task.val_size = 100
    landscape = Landscape(run)
    assert [len(batch.inputs) for batch in landscape.batches] == [8] * BATCHES
