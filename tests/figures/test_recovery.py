"""The figure of errors in the state."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch.utils._pytree import tree_leaves

from gyral.core.errors import OptionError
from gyral.figures import recovery
from gyral.plotting.style import cell_styles, save, style
from gyral.runs.directory import Run
from gyral.training import build
from tests.helpers.figure_checks import check_figure
from tests.helpers.running import build_task

GROUP = ("task=group", "task.group=S3", "task.length=3", "task.batch_size=8", "model.cell.hidden_size=6")


def rows(state: Any) -> torch.Tensor:
    leaves = [torch.view_as_real(leaf) if leaf.is_complex() else leaf for leaf in tree_leaves(state)]
    return torch.cat([leaf.flatten(1) for leaf in leaves if leaf.dim() > 1], dim=1).double()


@pytest.mark.parametrize("model", ["lstm", "delta_product", "lru"])
def test_a_disturbance_is_a_tenth_of_the_state_in_each_row(model: str) -> None:
    task = build_task(*GROUP, f"model={model}").eval()
    with torch.no_grad():
        _, state = task.model(torch.randint(6, (8, 4)))
        twin = recovery.disturb(state)
    ratios = (rows(twin) - rows(state)).norm(dim=1) / rows(state).norm(dim=1)
    assert ratios.tolist() == pytest.approx([recovery.NOISE] * 8, rel=1e-5)


def test_distances_and_labels_equal_those_of_the_words_read_letter_by_letter() -> None:
    task = build_task(*GROUP, "model=gru").train()
    found = recovery.measure_recovery(task)
    assert task.training
    assert found.letters.tolist() == [1, 2, 4, 8, 16], "of the 21 letters after the third of 24"
    batch = task.data.draw(np.random.default_rng(recovery.SEED), "test", 3)
    assert batch.inputs.shape == (8, 25)
    with task.evaluating():
        _, state = task.model(batch.inputs[:, :4])
        twin, expected = recovery.disturb(state), {}
        for step in range(4, 20):
            letter = batch.inputs[:, step : step + 1]
            (outputs, state), (disturbed, twin) = task.model(letter, state), task.model(letter, twin)
            distance = ((rows(twin) - rows(state)).norm(dim=1) / rows(state).norm(dim=1)).median()
            right = [(each[:, 0].argmax(-1) == batch.targets[:, step]).float().mean() for each in (disturbed, outputs)]
            expected[step - 3] = [float(distance), *map(float, right)]
    for letters, *values in np.array(found).T.tolist():
        assert values == pytest.approx(expected[letters], rel=1e-3)


def test_runs_of_a_model_share_a_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [("seed=1",), ("seed=2", "task.test_factors=[1,2,4]"), ("seed=1", "task.test_factors=[1,2]")]
    tasks = iter([build_task(*GROUP, "model=gru", *own) for own in options])
    measured: list[recovery.Recovery] = []
    measure = recovery.measure_recovery

    def remember(task: Any) -> recovery.Recovery:
        measured.append(measure(task))
        return measured[-1]

    monkeypatch.setattr(build, "load_trained", lambda run, checkpoint: (next(tasks), 0))
    monkeypatch.setattr(recovery, "measure_recovery", remember)
    other = replace(run, config=OmegaConf.merge(run.config, {"model": {"cell": {"lambd": 0}}}))
    with style():
        figure = recovery.recovery(run, run, other)
        check_figure(figure)
        save(figure, tmp_path / "recovery.png", "Recovery")
    _, line, short = figure.axes[0].lines
    assert line.get_color() == cell_styles(["RUM"])[0]["color"], "the cell of the run"
    expected = np.mean([np.clip(each.distance[:4], *recovery.DRAWN) for each in measured[:2]], axis=0)
    assert line.get_xdata().tolist() == [1, 2, 4, 8], "as far as both runs"
    assert line.get_ydata() == pytest.approx(expected)
    assert short.get_xdata().tolist() == [1, 2]
    assert [axes.get_xticks().tolist() for axes in figure.axes] == [[1, 4]] * 2, "also beyond the end of a short line"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("task.labels=end",), "needs a label after each letter"),
        (("task.test_factors=[1]",), "needs a test with longer words than those of training"),
        (("task=recall", "task.train_size=8"), "needs a task of state tracking, such as group; this is RecallTask"),
    ],
)
def test_unsupported_tasks_are_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], reason: str
) -> None:
    given = (*options, "task.batch_size=4") if "task=recall" in options else (*GROUP, *options)
    monkeypatch.setattr(build, "load_trained", lambda run, checkpoint: (build_task(*given, "model=gru"), 0))
    with pytest.raises(OptionError, match=rf"^run={run.directory}: the figure .*{reason}$"):
        recovery.recovery(run)
