"""Norms along training and of every step's gradient: against autograd and finite differences, resumed, drawn."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import gyral
from gyral.core.errors import OptionError
from gyral.figures.norms import norms, read_step_gradients
from gyral.plotting.style import cell_styles
from gyral.report import draw_figure as draw
from gyral.runs.directory import load_run
from gyral.runs.metrics_file import read_metrics
from gyral.training import build
from gyral.training.callbacks.norms import Norms, hidden_of
from tests.helpers.running import SMALL_RECALL, invoke, load_last, read_rows
from tests.helpers.sequences import sequences_file

RUN = (*SMALL_RECALL, "model=rum", "optimizer=adam", "callbacks=norms", "callbacks.checkpoints.every=8")


def train(directory: Path, *arguments: str) -> Path:
    outcome = invoke(*arguments, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that failed after step 17 and was resumed at its checkpoint of step 16."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    step = build.SequenceTask.training_step

    def fail_late(self: build.SequenceTask, batch: object, index: int) -> Tensor:
        if self.global_step == 17:
            raise MemoryError
        return step(self, batch, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build.SequenceTask, "training_step", fail_late)
        assert invoke(*RUN, f"hydra.run.dir={directory}").status == 1
    return train(directory, *RUN)


def without_norms(directory: Path) -> list[dict[str, str]]:
    rows = [
        {name: value for name, value in row.items() if value and "_norm" not in name} for row in read_rows(directory)
    ]
    return [row for row in rows if len(row) > 1]


def test_recording_changes_no_bit_of_the_training_also_where_it_resumes(directory: Path, tmp_path: Path) -> None:
    plain = train(tmp_path / "run", *(word for word in RUN if word != "callbacks=norms"))
    assert without_norms(plain) == without_norms(directory)
    for name, weight in load_last(plain)["state_dict"].items():
        assert torch.equal(weight, load_last(directory)["state_dict"][name])


def test_both_norms_are_logged_with_each_logged_step(directory: Path) -> None:
    logged = [row["step"] for row in read_rows(directory) if row["train/loss"]]
    assert [row["step"] for row in read_rows(directory) if row["train/gradient_norm"]] == logged
    assert all(float(row["train/hidden_norm"]) > 0 for row in read_rows(directory) if row["train/hidden_norm"])


def test_the_gradient_at_a_step_is_what_moving_its_hidden_state_costs(directory: Path) -> None:
    run = load_run(directory)
    task = build.build_task(run.config).double()
    task.load_state_dict({name: value.double() for name, value in load_last(directory)["state_dict"].items()})
    [cell] = task.model.recurrent.cells
    batch = next(iter(task.data.loader("val")))
    direction = torch.randn(len(batch.inputs), cell.hidden_size, dtype=torch.float64)
    take, moved_at = type(cell).step, 5

    def loss(shift: float) -> Tensor:
        count = 0

        def moved(*given: Tensor) -> tuple[Tensor, object]:
            nonlocal count
            output, state = take(cell, *given)
            count += 1
            if count - 1 == moved_at:
                state = state._replace(hidden=state.hidden + shift * direction)
                output = state.hidden
            return output, state

        cell.step = moved
        with cell.record_steps():
            return task.loss(task(batch), batch)

    slope = ((loss(1e-5) - loss(-1e-5)) / 2e-5).item()
    del cell.step
    with cell.record_steps() as steps:
        measured = task.loss(task(batch), batch)
    [gradient] = torch.autograd.grad(measured, [steps[moved_at].state.hidden])
    assert slope == pytest.approx((gradient * direction).sum().item(), rel=1e-6)
    # it is what was recorded, in single precision, after the last step
    rows, gradients = read_step_gradients(directory)
    assert rows == [8, 16, 24], "each once, although the run was resumed"
    [values] = gradients.values()
    assert values.shape == (3, batch.inputs.shape[1])
    assert values[-1, moved_at] == pytest.approx(gradient.norm().item(), rel=1e-4)


def test_every_layer_has_its_steps(tmp_path: Path) -> None:
    options = (*SMALL_RECALL, "model=fs_lstm", "model.cell.slow_size=4", "model.num_layers=2")
    train(tmp_path, *options, "callbacks=norms", "trainer.max_steps=2", "trainer.val_check_interval=2")
    _, gradients = read_step_gradients(tmp_path)
    assert set(gradients) == {"recurrent.cells.0", "recurrent.cells.1"}
    for values in gradients.values():
        assert np.nansum(values) > 0


def test_the_last_hidden_vector_of_a_row_is_that_at_its_length(tmp_path: Path) -> None:
    words = ("task=sequences", f"task.data={sequences_file()}", "task.split=part", "model=gru", "callbacks=norms")
    run = train(tmp_path / "run", *words, "trainer.max_steps=2", "trainer.val_check_interval=2", "threads=1")
    task = gyral.load(run, checkpoint="last")
    batch = next(iter(task.data.loader("val")))
    assert len(set(batch.lengths.tolist())) > 1
    rows = [
        task.model.recurrent(batch.inputs[[row], :length].transpose(0, 1))[1]
        for row, length in enumerate(batch.lengths)
    ]
    norms = torch.stack([hidden_of(state).norm(dim=1).mean() for [state] in rows])
    [logged] = [value for row in read_rows(run) for name, value in row.items() if "val/hidden_norm" in name and value]
    assert float(logged) == pytest.approx(norms.mean().item(), rel=1e-5)


def test_the_figure_has_two_curves_and_a_panel_per_cell(directory: Path) -> None:
    figure = norms(load_run(directory))
    above = figure.axes[:2]
    for axes, name in zip(above, ("train/gradient_norm", "val/hidden_norm_recurrent_cells_0"), strict=True):
        steps, values = read_metrics(directory, name)
        assert axes.lines[0].get_xdata().tolist() == steps
        assert axes.lines[0].get_ydata().tolist() == values
    color = cell_styles(["RUM"])[0]["color"]
    assert [axes.lines[0].get_color() for axes in above] == [color, color]
    [panel] = figure.axes[2:]
    assert [line.get_label() for line in panel.lines] == ["after step 8", "after step 16", "after step 24"]
    with (directory / Norms.FILE).open(newline="") as file:
        _, first, *_ = csv.reader(file)
    assert panel.lines[0].get_ydata().tolist() == list(map(float, first[1:]))


@pytest.mark.slow
def test_the_figure_is_saved(directory: Path) -> None:
    assert draw("norms", directory)[0].is_file()


def test_several_runs_are_in_one_figure(directory: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "overrides.yaml", "metrics.csv"):
        (tmp_path / name).write_text((directory / name).read_text().replace("seed: 1", "seed: 2"))
    header, _, row = (directory / Norms.FILE).read_text().split("\n")[:3]
    (tmp_path / Norms.FILE).write_text(
        "\n".join((header, "3," + "0," * 5 + "0.1" + ",0" * (header.count(",") - 6), row, ""))
    )
    figure = norms(load_run(directory), load_run(tmp_path))
    gradient, hidden, *panels = figure.axes
    assert [len(axes.lines) for axes in (gradient, hidden)] == [2, 2]
    assert [panel.get_title() for panel in panels] == ["RUM, seed 1", "RUM, seed 2"]
    # validations after the same step look alike in all panels and in the legend, and no others do
    looks: dict[str, set[object]] = {}
    for line in (*(line for panel in panels for line in panel.lines), *figure.legends[0].get_lines()):
        if line.get_linestyle() != "None":
            looks.setdefault(str(line.get_label()), set()).add((line.get_color(), line.get_linestyle()))
    assert all(len(own) == 1 for own in looks.values())
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["RUM, seed 1", "RUM, seed 2", *(f"after step {step}" for step in (4, 8, 16, 24))]
    assert len(set.union(*(looks[text] for text in texts))) == len(texts)
    # a gradient between two that vanished has no line
    marked = [line for line in panels[1].lines if line.get_marker() == "."]
    assert marked[0].get_xydata().tolist() == [[5, 0.1]]


def test_a_run_of_version_0_2_0_shows_the_one_curve_that_it_has(directory: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "metrics.csv", Norms.FILE):
        (tmp_path / name).write_text((directory / name).read_text().replace("val/hidden_norm", "val/other"))
    hidden = norms(load_run(tmp_path)).axes[1]
    assert hidden.lines[0].get_ydata().tolist() == read_metrics(directory, "train/hidden_norm")[1]


def test_a_run_without_norms_names_the_callback(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((directory / "config.yaml").read_text())
    with pytest.raises(OptionError, match=r"has no step_gradients\.csv, which is recorded by .* callbacks=norms$"):
        draw("norms", tmp_path)
    (tmp_path / Norms.FILE).write_text("step\n")
    with pytest.raises(OptionError, match=r"stopped before its first validation; step_gradients\.csv is empty$"):
        draw("norms", tmp_path)


def test_a_gradient_that_vanished_is_not_drawn(tmp_path: Path) -> None:
    (tmp_path / Norms.FILE).write_text("step,cell/0,cell/1\n7,0.0,2.0\n")
    _, gradients = read_step_gradients(tmp_path)
    assert math.isnan(gradients["cell"][0, 0])
    assert gradients["cell"][0, 1] == 2
