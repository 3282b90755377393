"""Training on the first labels of sequences, and on more of them once the loss is small."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, Batch
from gyral.tasks import steps
from gyral.training.callbacks import label_curriculum
from gyral.training.callbacks.label_curriculum import LabelCurriculum
from tests.helpers import killing
from tests.helpers.recorder import Recorder
from tests.helpers.running import SMALL, assert_same_run, build_task, invoke, load_last, read_rows

# Parity: the loss is below 0.75 nats at most steps.
GROUP = (
    *(item for item in SMALL if not item.startswith(("task.", "model.cell"))),
    "task=group",
    "task.group=Z2",
    "task.length=12",
    "task.test_factors=[1]",
    "task.batch_size=4",
    "task.val_batches=1",
    "task.test_batches=1",
    "model=gru",
    "model.cell.hidden_size=6",
    "callbacks=label_curriculum",
    "callbacks.label_curriculum.loss=0.7",
    "callbacks.checkpoints.every=4",
)


def test_later_labels_are_ignored_and_one_more_counts_after_a_small_loss(task: Any) -> None:
    callback, trainer = LabelCurriculum(loss=0.5, labels=2), Recorder(task)
    trainer.log_every_n_steps, trainer.global_step, trainer.accumulate_grad_batches = 10, 1, 1
    for loss, count in ((0.6, 2), (0.5, 2), (0.4, 2), (0.4, 3), (float("nan"), 4), (0.1, 4), (0.1, 5)):
        targets = torch.tensor([[IGNORED, 1, 2, 3, 4, 5], [1, IGNORED, 2, 3, 4, 5]])
        callback.on_train_batch_start(trainer, task, Batch(targets, targets), 0)
        assert (targets != IGNORED).sum(dim=1).tolist() == [count, count]
        assert targets[0, : count + 1].tolist() == [IGNORED, *range(1, count + 1)]
        callback.on_train_batch_end(trainer, task, {"loss": torch.tensor(loss)}, None, 0)


def test_processes_that_share_a_batch_have_the_loss_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    task, callback = (
        build_task("task=group", "task.group=Z2", "task.length=6", "task.batch_size=8", "model=gru").eval(),
        LabelCurriculum(labels=2),
    )
    batch = task.data.draw(np.random.default_rng(0), "test", 0)
    batch.targets[:3, 2:] = IGNORED  # one label, after the begin symbol; the other rows have six

    def hide(rows: Batch) -> Batch:
        rows = rows._replace(targets=rows.targets.clone())
        callback.on_train_batch_start(Recorder(task), task, rows, 0)
        return rows

    hidden = hide(batch)
    whole = task.loss(task(hidden), hidden)
    counts = [int((part != IGNORED).sum()) for part in hidden.targets.tensor_split(2)]
    assert counts[0] < counts[1]
    monkeypatch.setattr(label_curriculum, "all_gather_object", lambda _: counts)
    for module in (steps, label_curriculum):
        monkeypatch.setattr(module, "world_size", lambda: 2)
    losses = []
    for number in range(2):
        monkeypatch.setattr(steps, "rank", lambda number=number: number)
        rows = hide(task.on_before_batch_transfer(batch, 0))
        losses.append(task._weight * task.loss(task(rows), rows))
    torch.testing.assert_close(torch.stack(losses).mean(), whole)


def test_a_killed_run_goes_on_with_as_many_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with monkeypatch.context() as context:
        killing.arm("after_replace", 12, act=lambda: shutil.copytree(whole, killed), patch=context.setattr)
        outcome = invoke(*GROUP, f"hydra.run.dir={whole}")
    assert outcome.status == 0, outcome.err
    labels = [float(row["train/curriculum_labels"]) for row in read_rows(whole) if row["train/curriculum_labels"]]
    assert labels[0] < labels[1] <= labels[-1], labels
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, killed)
    states = [load_last(directory)["callbacks"]["LabelCurriculum"] for directory in (whole, killed)]
    assert states[0] == states[1]


def test_what_it_cannot_hide_is_refused(task: Any) -> None:
    callback = LabelCurriculum()
    callback.on_train_batch_start(Recorder(task), task, Batch(torch.zeros(2, 3), torch.zeros(2, 3).long()), 0)
    for targets in (torch.zeros(2).long(), torch.zeros(2, 3), torch.zeros(2, 3, 4)):
        with pytest.raises(OptionError, match=r"^callbacks=label_curriculum: needs a class at each step"):
            callback.on_train_batch_start(Recorder(task), task, Batch(targets, targets), 0)
    task.data.overfit = True
    with pytest.raises(OptionError, match=r"^overfit=True: must be false"):
        callback.check_task(task)
    with pytest.raises(OptionError, match=r"^loss=0: must be"):
        LabelCurriculum(loss=0)
