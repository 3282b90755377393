"""bAbI and bAbI-Mix as reading comprehension: the readout, metrics of the data, a complete run."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gyral.applications.reading.models.readouts import AttentionClassifier, AttentionSum
from gyral.applications.reading.tasks.babi_reading import BabiReadingTask
from gyral.core.errors import OptionError
from gyral.data.babi.stories import questions
from gyral.runs.directory import Run
from tests.helpers.running import build_task, invoke

MODEL = ("model=attention_sum", "cell@model.cell=mage_gru", "model.cell.hidden_size=4", "model.embedding_size=3")


def made(*overrides: str, task: str = "babi_reading", **options: Any) -> BabiReadingTask:
    """Build the task on generated stories, with a tiny reader."""
    built = build_task(f"task={task}", *MODEL, *overrides, **{"generated": True, "qa": 2, **options})
    assert isinstance(built, BabiReadingTask)
    return built


def test_a_story_of_task_2_is_drawn_as_in_the_module() -> None:
    task = made()
    batch = task.data.splits["test"].batch(np.array([0]))
    drawn = task.render(batch, batch.targets).splitlines()
    asked = next(questions(task.data.babi.splits["test"]))
    assert drawn[0].endswith(" | " + " ".join(asked.words).lower())
    assert drawn[1:] == [f"target      {asked.answer}", f"prediction  {asked.answer}"]


def test_answers_of_the_story_are_found_by_attention_and_others_are_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    task = made()
    assert isinstance(task.model.readout, AttentionSum)
    batch = task.data.splits["test"].batch(np.arange(5))
    assert all((row == target + 1).any() for row, target in zip(batch.mentions, batch.targets, strict=True))
    assert task.classes == task.data.babi.classes
    monkeypatch.setattr("gyral.applications.reading.tasks.babi_reading.answers_in_stories", lambda *_: False)
    assert isinstance(made().model.readout, AttentionClassifier)


def test_edges_join_entities_or_are_absent() -> None:
    entities, none = (made(edges=edges).data.splits["val"].batch(np.arange(9)) for edges in ("entities", "none"))
    assert entities.edges.earlier.any(dim=1).all()
    assert not none.edges.earlier.any()
    assert torch.equal(entities.chains, none.chains)  # a reader may have them as inputs


def test_each_task_has_a_separate_accuracy() -> None:
    assert set(made(qa="all").metrics.names) == {"loss", "accuracy", "accuracy_qa1", "accuracy_qa2"}


def test_without_a_release_stories_are_generated_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        task = made(generated=False, data_dir=str(tmp_path))
    assert "using GENERATED stories" in caplog.text
    assert task.data_metrics() == {"baseline": task.baseline, "substitute": 1, "stand_ins": 0}
    with pytest.raises(OptionError, match=r"^task.qa=3: must be .*; .*`gyral fetch babi`"):
        made(generated=False, data_dir=str(tmp_path), qa=3)


def test_a_mix_has_both_worlds_and_its_size_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        mixed = made(task="babi_mix")
    found = [len(asked.story) for split in mixed.data.babi.splits.values() for asked in questions(split)]
    expected = f"{sum(found) / len(found):.0f} sentences a mix on average, at most {max(found)}; "
    assert f"generated-mix: {expected}" in caplog.text
    assert len(mixed.classes or ()) == 2 * len(made().classes or ())
    assert made(task="babi_mix", mix_seed=1).data.babi.splits != mixed.data.babi.splits


def test_evaluating_a_run_reproduces_its_results(with_edges: Run, tmp_path: Path) -> None:
    results = json.loads((with_edges.directory / "DONE").read_text())
    assert results["test/substitute"] == 1
    assert invoke(f"run={with_edges.directory}", f"save={tmp_path}/a.json", entry="evaluate").status == 0
    numbers = json.loads((tmp_path / "a.json").read_text())["numbers"]
    for name in ("test/accuracy", "test/loss"):
        assert numbers[name] == pytest.approx(results[name], abs=1e-6)


@pytest.mark.slow
def test_a_reader_with_edges_learns_where_people_are() -> None:
    torch.manual_seed(0)
    task = made("model.cell.hidden_size=32", "model.cell.edge_size=16", "model.embedding_size=16", qa=1).train()
    optimizer = torch.optim.Adam(task.parameters(), lr=0.01)
    order = np.random.default_rng(0)
    examples = task.data.splits["train"]
    for _ in range(150):
        batch = examples.batch(order.choice(len(examples), 32))
        optimizer.zero_grad()
        task.loss(task(batch), batch).backward()
        optimizer.step()
    task.eval()
    correct = [task(batch).argmax(dim=1) == batch.targets for batch in task.data.loader("test")]
    assert torch.cat(correct).float().mean() > 0.9
