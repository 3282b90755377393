"""LAMBADA and cloze questions: metrics that depend on no network, and references that a test reports."""

from pathlib import Path

import pytest
import torch

from gyral.applications.reading.tasks.corpus_reading import MentionMetrics
from gyral.data.batching import IGNORED
from tests.applications.reading.examples import VOCABULARY, batch_of
from tests.helpers.running import invoke, read_rows


def test_metrics_without_predictions_depend_only_on_the_data() -> None:
    batch = batch_of(0, 2)  # john is mentioned twice, home once; mary once, home once
    metrics = MentionMetrics(3)
    metrics.update(torch.zeros(2, 3), batch, torch.tensor(1.0))
    found = {name: value.item() for name, value in metrics.compute().items()}
    assert found["answerable"] == 1
    assert found["most_mentioned"] == 0  # the answer is home in both; of mary and home, mary is the first candidate
    torch.set_default_dtype(torch.bfloat16)  # as Lightning does with trainer.precision=bf16-true
    try:
        metrics.update(torch.zeros(2, 3), batch, torch.tensor(1.0))
    finally:
        torch.set_default_dtype(torch.float32)
    assert metrics.compute()["most_mentioned"] == 0
    metrics = MentionMetrics(3, [VOCABULARY.index["john"]])
    metrics.update(torch.zeros(2, 3), batch._replace(targets=torch.tensor([0, IGNORED])), torch.tensor(1.0))
    found = {name: value.item() for name, value in metrics.compute().items()}
    assert (found["answerable"], found["most_mentioned"], found["accuracy"]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("task", ["lambada", pytest.param("cloze", marks=pytest.mark.slow)])
def test_a_run_reports_the_substitute_and_the_references(task: str, tmp_path: Path) -> None:
    outcome = invoke(
        *("model=attention_sum", "cell@model.cell=gru", "model.cell.hidden_size=4", "model.embedding_size=4"),
        *(f"task={task}", "task.source=generated", "task.batch_size=8", "threads=1", "trainer.accelerator=cpu"),
        *("trainer.max_steps=2", "trainer.val_check_interval=2", "callbacks.checkpoints.every=2", "logger=csv"),
        *(["task.ngrams=[1,3]"] if task == "lambada" else []),
        f"hydra.run.dir={tmp_path}",
    )
    assert outcome.status == 0, outcome.err
    assert "GENERATED questions, whose results are not results on any published corpus" in outcome.out + outcome.err
    row = read_rows(tmp_path)[-1]
    assert row["test/substitute"] == "1.0"
    assert 0 < float(row["test/most_mentioned"]) <= float(row["test/answerable"]) <= 1
    if task == "lambada":
        assert 0 <= float(row["test/ngram_1_accuracy"]) <= float(row["test/ngram_3_accuracy"]) <= 1
