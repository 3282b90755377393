"""Hypernyms and ratings beyond the contract: thresholds, measures, and learning."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gyral.applications.boxes.data.pairs import ConceptBatch
from gyral.applications.boxes.tasks.concept_pairs import MARGIN, Probability
from gyral.applications.boxes.tasks.conditionals import ConditionalMetrics, ranks
from gyral.applications.boxes.tasks.hypernyms import HypernymMetrics, best_threshold
from tests.helpers.running import build_task

SCORES = torch.tensor([-0.1, -0.2, -0.2, -0.4, -0.5, -3.0], dtype=torch.float64)
LABELS = torch.tensor([True, True, False, True, False, False])


def test_the_threshold_is_the_best_one_between_different_scores() -> None:
    f1 = best_threshold(SCORES, LABELS, "f1")
    assert f1.item() == pytest.approx(-0.45)  # 3 of 4 correct
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert best_threshold(SCORES[order], LABELS[order], "f1") == f1
    assert best_threshold(SCORES, ~LABELS, "accuracy") < -3, "all are true or all are false"
    assert best_threshold(torch.zeros(4), torch.tensor([True, False, True, False]), "f1") < 0
    assert best_threshold(SCORES, torch.arange(6) == 3, "accuracy") > 0, "5 of 6 are right if none is true"


def test_the_measures_of_hypernyms() -> None:
    metrics = HypernymMetrics()
    for rows in (slice(0, 4), slice(4, 6)):
        batch = ConceptBatch(torch.zeros(len(SCORES[rows]), 2), LABELS[rows].float())
        metrics.update(SCORES[rows], batch, torch.tensor(1.0))
    metrics.choose_threshold()
    values = metrics.compute()
    assert tuple(values) == metrics.names
    assert values["f1"].item() == pytest.approx(6 / 7)
    assert values["accuracy"].item() == pytest.approx(5 / 6)
    # precisions at each true pair, of which the second has the same score as a false one
    assert values["average_precision"].item() == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert "metrics.threshold" in build_task("task=hypernyms", "model=order").state_dict()


def test_the_measures_of_probabilities() -> None:
    metrics = ConditionalMetrics()
    predicted, true = torch.tensor([0.2, 0.5, 0.5, 0.9]), torch.tensor([0.1, 0.6, 0.4, 0.8])
    loss = Probability().loss(predicted.log(), true)
    metrics.update(predicted.log(), ConceptBatch(torch.zeros(4, 2), true), loss)
    values = metrics.compute()
    found = predicted * (1 - MARGIN)
    divergence = true * (true / found).log() + (1 - true) * ((1 - true) / (1 - found)).log()
    assert values["kl"].item() == pytest.approx(divergence.mean().item(), rel=1e-4)
    assert values["pearson"].item() == pytest.approx(torch.corrcoef(torch.stack((predicted, true)))[0, 1].item())
    assert ranks(predicted).tolist() == [1, 2.5, 2.5, 4]
    assert values["spearman"].item() == pytest.approx(4.5 / math.sqrt(4.5 * 5), rel=1e-5)


def test_the_loss_of_a_certain_mistake_is_finite() -> None:
    outputs = torch.zeros(2, requires_grad=True)
    loss = Probability().loss(outputs, torch.tensor([0.0, 1.0]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(MARGIN) / 2, rel=1e-3)
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


def test_the_baseline_is_the_entropy_of_the_share_of_true_pairs() -> None:
    task = build_task("task=hypernyms", "model=order", negatives=3)
    assert task.baseline == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    batch = next(iter(task.data.loader("val")))
    assert task.loss(torch.full(batch.targets.shape, math.log(0.25)), batch) > 0


def test_the_task_of_all_nouns_reads_published_splits(tmp_path: Path) -> None:
    folder = tmp_path / "wordnet"
    folder.mkdir()
    names = [f"noun{number}.n.01" for number in range(9)]
    (folder / "hypernym_vocab.txt").write_text("\n".join(names))
    true = [f"IsA\t{names[number]}\t{names[0]}\t1\n" for number in range(1, 9)]
    for name in ("train", "dev", "test"):
        (folder / f"wordnet_{name}.txt").write_text("".join((*true[:4], f"IsA\t{names[0]}\t{names[5]}\t0\n")))
    task = build_task("task=hypernyms_wordnet", "model=order", data_dir=str(tmp_path), batch_size=3, negatives=2)
    assert task.metrics.criterion == "accuracy"
    task.data.trainer = SimpleNamespace(max_steps=2, accumulate_grad_batches=1)
    batches = list(task.data.stream())
    assert [task.batch_size_in_units(batch) for batch in batches] == [9, 9]
    assert batches[0].targets.tolist() == [1] * 3 + [0] * 6
    (evaluated,) = task.data.loader("test")
    assert evaluated.inputs.tolist()[-2:] == [[0, 4], [5, 0]], "the general concept is first"
    assert evaluated.targets.tolist() == [1, 1, 1, 1, 0]


@pytest.mark.slow
def test_smoothed_boxes_learn_the_order_of_mammals() -> None:
    task = build_task("task=hypernyms", "model=smoothed_box", negatives=2, batch_size=512)
    task.data.trainer = SimpleNamespace(max_steps=600, accumulate_grad_batches=1)
    optimizer = torch.optim.Adam(task.model.parameters(), lr=0.03)
    for batch in task.data.stream():
        optimizer.zero_grad()
        task.loss(task(batch), batch).backward()
        optimizer.step()
    with torch.no_grad():
        for split in ("val", "test"):
            for batch in task.data.loader(split):
                task.metrics.update(task(batch), batch, torch.zeros(()))
            if split == "val":
                task.metrics.choose_threshold()
            values = task.metrics.compute()
    assert values["f1"] > 0.85
