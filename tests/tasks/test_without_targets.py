"""A mean over nothing has no value: it adds no loss, changes no metric, and is not printed as a number."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.applications.boxes.data.pairs import ConceptBatch
from gyral.applications.boxes.tasks.concept_pairs import Probability, ProbabilityMetrics
from gyral.data.babi import answers
from gyral.data.babi.corpus import load_generated
from gyral.data.batching import IGNORED, Batch
from gyral.tasks.metrics import (
    AccuracyMetrics,
    AnswerMetrics,
    BitMetrics,
    CategoryRegressionMetrics,
    Determination,
    Metrics,
    RegressionMetrics,
    SequenceMetrics,
)
from gyral.tasks.objective import Bits, Classification, Objective, Regression
from gyral.tasks.text import TextMetrics
from gyral.tasks.tracking import TrackingMetrics
from tests.helpers.running import SMALL_RECALL, invoke, load_last, read_rows

CLASSES, ROWS, STEPS = 3, 2, 4
INPUTS = torch.zeros(ROWS, STEPS, dtype=torch.int64)


def classes(absent: bool) -> Tensor:
    return torch.full((ROWS, STEPS), IGNORED) if absent else torch.arange(ROWS * STEPS).view(ROWS, STEPS) % CLASSES


def reals(*shape: int) -> Callable[[bool], Tensor]:
    return lambda absent: torch.full(shape, math.nan) if absent else torch.rand(shape).round()


# By name: the objective, its targets, and a metric of it.
FORMS: dict[str, tuple[Objective, Callable[[bool], Tensor], Callable[[], Metrics]]] = {
    "classes": (Classification(CLASSES), classes, lambda: AccuracyMetrics(CLASSES)),
    "sequences": (Classification(CLASSES), classes, lambda: SequenceMetrics(CLASSES)),
    "answers": (Classification(CLASSES), classes, AnswerMetrics),
    "text": (Classification(CLASSES), classes, lambda: TextMetrics(CLASSES, STEPS)),
    "tracking": (
        Classification(CLASSES),
        classes,
        lambda: TrackingMetrics((), {name: [0.5] for name in ("accuracy", "sequence_accuracy", "length_accuracy")}),
    ),
    "bits": (Bits(2), reals(ROWS, STEPS, 2), BitMetrics),
    "real values": (Regression(2), reals(ROWS, STEPS, 2), lambda: RegressionMetrics(2)),
    "one of each sequence": (Regression(2), reals(ROWS, 2), lambda: CategoryRegressionMetrics(2)),
    "probabilities": (Probability(), reals(ROWS), ProbabilityMetrics),
}


def batch_of(name: str, targets: Tensor) -> Any:
    if name == "probabilities":
        return ConceptBatch(torch.zeros(ROWS, 2, dtype=torch.int64), targets)
    return Batch(INPUTS, targets)


def outputs_for(objective: Objective, targets: Tensor) -> Tensor:
    outputs = torch.randn(*targets.shape[: 2 if targets.dim() == 3 else None], objective.output_size)
    outputs = -torch.rand(ROWS) if isinstance(objective, Probability) else outputs
    outputs = torch.randn(targets.shape) if isinstance(objective, Regression) else outputs
    return outputs.requires_grad_()


@pytest.mark.parametrize("name", FORMS)
def test_a_batch_without_targets_adds_nothing(name: str) -> None:
    objective, targets, make = FORMS[name]
    outputs = outputs_for(objective, targets(True))
    loss = objective.loss(outputs, targets(True))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss == 0
    assert outputs.grad is not None
    assert (outputs.grad == 0).all()

    present, values = targets(False), []
    for batches in ([False], [True, False, True]):
        metrics = make()
        for absent in batches:
            of = targets(True) if absent else present
            metrics.update(outputs.detach(), batch_of(name, of), objective.loss(outputs, of).detach())
        values.append(metrics.compute())
    for key, value in values[0].items():
        torch.testing.assert_close(values[1][key], value, equal_nan=True)


@pytest.mark.parametrize("name", FORMS)
def test_metrics_of_nothing_have_no_value(name: str) -> None:
    objective, targets, make = FORMS[name]
    metrics, outputs = make(), outputs_for(objective, targets(True)).detach()
    metrics.update(outputs, batch_of(name, targets(True)), objective.loss(outputs, targets(True)))
    values = metrics.compute()
    assert [key for key, value in values.items() if not value.isnan()] == []


@pytest.mark.parametrize("name", ["text", "tracking", "real values"])
def test_a_task_in_half_precision_has_the_same_metrics(name: str) -> None:
    objective, targets, make = FORMS[name]
    metrics, half = make(), make()
    half.to(torch.bfloat16)
    for _ in range(40):
        present = targets(False)
        outputs = outputs_for(objective, present).detach()
        for each in (metrics, half):
            each.update(outputs, batch_of(name, present), objective.loss(outputs, present))
    values = half.compute()
    assert {key: value.item() for key, value in metrics.compute().items()} == {
        key: value.item() for key, value in values.items()
    }


@pytest.mark.parametrize("missing", [0, 1])
def test_a_sequence_without_answers_is_neither_right_nor_wrong(missing: int) -> None:
    logits, targets = torch.zeros(ROWS, STEPS, CLASSES), torch.zeros(ROWS, STEPS, dtype=torch.int64)
    targets[:, 0] = 1 - missing
    targets[missing] = IGNORED
    metrics = SequenceMetrics(CLASSES)
    metrics.update(logits, Batch(INPUTS, targets), torch.tensor(1.0))
    assert metrics.compute()["sequence_accuracy"] == missing


def test_r2_needs_two_targets() -> None:
    for count, expected in ((0, math.nan), (1, math.nan), (2, 1.0)):
        r2 = Determination(1)
        values = torch.arange(float(count)).view(-1, 1)
        r2.update(values, values)
        assert r2.compute().item() == pytest.approx(expected, nan_ok=True)


def test_answers_outside_the_classes_have_no_baseline() -> None:
    babi = load_generated(1, "1k", 0)
    object.__setattr__(babi, "classes", ())
    assert math.isnan(answers.frequency_loss(babi))


def test_training_continues_where_all_targets_of_a_batch_are_ignored(tmp_path: Path) -> None:
    inputs, targets = np.arange(24).reshape(6, 4) % 5, np.arange(24).reshape(6, 4) % 3
    targets[:2] = IGNORED
    split = np.array(["train", "train", "train", "val", "val", "test"])
    np.savez(tmp_path / "rows.npz", inputs=inputs, targets=targets, split=split)
    kept = (word for word in SMALL_RECALL if not word.startswith(("task", "trainer.max_steps")))
    words = (*kept, "model=gru", "trainer.max_steps=6", "trainer.log_every_n_steps=1", "task=sequences")
    words = (*words, f"task.data={tmp_path / 'rows.npz'}", "task.batch_size=1", "optimizer=sgd")
    outcome = invoke(*words, f"hydra.run.dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    losses = [float(row["train/loss"]) for row in read_rows(tmp_path / "run") if row["train/loss"]]
    norms = [float(row["train/gradient_norm"]) for row in read_rows(tmp_path / "run") if row["train/gradient_norm"]]
    assert [loss == 0 for loss in losses] == [norm == 0 for norm in norms]
    assert losses.count(0) == 4, "of the three rows, two have no target"
    assert all(value.isfinite().all() for value in load_last(tmp_path / "run")["state_dict"].values())


def test_what_was_not_measured_is_not_printed_as_a_number(tmp_path: Path) -> None:
    """The test has one row with one target, and a model without Statistics no speed."""
    np.savez(
        tmp_path / "rows.npz",
        inputs=np.random.default_rng(0).random((5, 3)),
        targets=np.arange(5) / 4,
        split=np.array(["train", "train", "val", "val", "test"]),
    )
    kept = (word for word in SMALL_RECALL if not word.startswith(("task", "callbacks", "~callbacks", "trainer.max")))
    words = (*kept, "model=gru", "trainer.max_steps=1", "task=sequences", "callbacks=none", "task.batch_size=2")
    outcome = invoke(*words, f"task.data={tmp_path / 'rows.npz'}", f"hydra.run.dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    assert "nan" not in outcome.out
    assert [line.split("│")[2].strip() for line in outcome.out.splitlines() if "R²" in line] == ["no value"]
    assert "not measured" in outcome.out
    shown = invoke(f"run={tmp_path / 'run'}", "checkpoint=last", entry="evaluate")
    assert shown.status == 1 or "nan" not in shown.out
