"""The base class of tasks that answer questions about documents, on questions made by hand."""

import logging
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gyral.applications.reading.models.reader import Reader
from gyral.applications.reading.models.readouts import AttentionClassifier, AttentionSum
from gyral.applications.reading.tasks.base import ReadingTask
from gyral.cells.mage_gru import MAGEGRUCell
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from tests.applications.reading.examples import QuestionData, batch_of


def build(**options: Any) -> ReadingTask:
    model = partial(Reader, partial(MAGEGRUCell, hidden_size=4, edge_size=2), embedding_size=3)
    given = {"name": "questions", "baseline": 1.0, "output_size": 3, "in_document": True, **options}
    return ReadingTask(model, QuestionData(), **given)


def test_answers_are_candidates_of_the_document_or_classes() -> None:
    assert isinstance(build().model.readout, AttentionSum)
    task = build(in_document=False, classes=("home", "john", "mary"), output_size=3)
    assert isinstance(task.model.readout, AttentionClassifier)
    assert task(batch_of(0, 2)).shape == (2, 3)
    assert task.candidate(batch_of(0), 0, 2) == "mary"


def test_memories_hold_the_longest_document_with_its_question() -> None:
    assert {cell.capacity for cell in build().modules() if isinstance(cell, MAGEGRUCell)} == {11}


def test_a_cell_for_another_number_of_types_of_edges_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^edge_types=1: must be 3, the types of edges of this task$"):
        build(edge_types=3)


def test_a_question_without_an_answer_has_no_loss_and_counts_as_wrong() -> None:
    task = build(tasks=(1, 2))
    batch = batch_of(0, 1, 2)._replace(targets=torch.tensor([0, IGNORED, 1]), tasks=torch.tensor([1, 1, 2]))
    logits = torch.tensor([[2.0, 1.0, 0.0], [9.0, 0.0, 0.0], [3.0, 1.0, 0.0]], requires_grad=True)
    loss = task.loss(logits, batch)
    expected = -logits.log_softmax(dim=1)
    torch.testing.assert_close(loss, (expected[0, 0] + expected[2, 1]) / 2)
    task.metrics.update(logits, batch, loss)
    values = {name: value.item() for name, value in task.metrics.compute().items()}
    wanted = {"loss": loss.item(), "accuracy": 1 / 3, "accuracy_qa1": 0.5, "accuracy_qa2": 0.0}
    assert values == pytest.approx(wanted)
    assert tuple(values) == task.metrics.names
    only = batch_of(1)._replace(targets=torch.tensor([IGNORED]))
    assert task.loss(logits[:1], only).item() == 0


def test_a_rendered_question_has_its_answer_and_prediction_as_words() -> None:
    task = build()
    drawn = task.render(batch_of(0, 2), torch.tensor([1, 2]), 0).splitlines()
    assert drawn == [
        "input       john went home . john ate . | where is john ?",
        "target      home",
        "prediction  john",
    ]
    assert task.render(batch_of(0, 2), torch.tensor([1, 2]), 1).splitlines()[2] == "prediction  (not in the document)"
    unanswered = batch_of(0)._replace(targets=torch.tensor([IGNORED]))
    assert "target      (none of the candidates)" in task.render(unanswered, torch.tensor([0]), 0)


def test_a_name_of_several_words_is_rendered_whole() -> None:
    batch = batch_of(0)
    batch.mentions[0, 1] = 2  # "john went"
    assert build().candidate(batch, 0, 1) == "john went"


def test_a_substitute_is_logged_and_reported_in_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    assert build().data_metrics()["substitute"] == 0
    with caplog.at_level(logging.WARNING):
        task = build(substitute="the corpus is missing; using a SUBSTITUTE")
    assert task.data_metrics() == {"baseline": 1.0, "substitute": 1.0}
    assert caplog.messages == ["the corpus is missing; using a SUBSTITUTE"]


def test_the_training_stream_has_every_question_in_each_pass() -> None:
    task = build()
    task.data.trainer = SimpleNamespace(max_steps=4, accumulate_grad_batches=1)
    batches = list(task.data.train_dataloader())
    for of_a_pass in (batches[:2], batches[2:]):
        assert sorted(length for batch in of_a_pass for length in batch.lengths.tolist()) == [6, 10, 11]


def test_attention_and_answers_after_steps_are_probabilities() -> None:
    task, batch = build(), batch_of(0, 2)
    attention = task.attention(batch)
    assert attention.shape == batch.inputs.shape
    torch.testing.assert_close(attention.sum(dim=1), torch.ones(2))
    assert attention[0, 7:].abs().sum() == 0
    after = task.probabilities_after(batch, [3, 5])
    torch.testing.assert_close(after.sum(dim=-1), torch.ones(2, 2))
    torch.testing.assert_close(task.probabilities(batch).sum(dim=-1), torch.ones(2))
    assert task.training
