"""bAbI as a task: levels, readouts, scores, one model for all tasks, a complete run."""

import json
import logging
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.applications.babi.batches import LEVELS, QuestionBatch
from gyral.applications.babi.task import QuestionMetrics
from gyral.core.errors import OptionError
from gyral.data.babi.corpus import Babi
from gyral.data.babi.stories import Question, Story, questions
from gyral.data.batching import IGNORED
from gyral.models.attention import Attention, LastStep, RotationalAttention
from gyral.runs.directory import Run
from tests.helpers.running import build_task, invoke
from tests.helpers.stories import oracle


def made(*overrides: str, **options: Any) -> Any:
    """Build the task on generated stories, with a tiny network in double precision."""
    known = {"generated": True, "size": "1k", "qa": 2, **options}
    model = ("model=gru", "model.cell.hidden_size=4", "model.embedding_size=3", *overrides)
    return build_task("task=babi", *model, **known).double().eval()


def asked(task: Any, split: str = "test") -> list[Question]:
    return list(questions(task.data.babi.splits[split]))


def scores(task: Any, split: str, answer: Any) -> dict[str, float]:
    """Return the metrics of one who predicts, of a batch, the logits that `answer` gives."""
    for batch in task.data.loader(split):
        logits = answer(batch)
        task.metrics.update(logits, batch, task.loss(logits, batch))
    return {name: value.item() for name, value in task.metrics.compute().items()}


def sure_of(task: Any, classes: Tensor) -> Tensor:
    return 50.0 * torch.nn.functional.one_hot(classes, len(task.data.babi.classes))


# --- model


@pytest.mark.parametrize(
    ("attention", "readout"), [(False, LastStep), (True, Attention), ("rotational", RotationalAttention)]
)
@pytest.mark.parametrize("level", LEVELS)
def test_padding_leaves_each_answer_as_it_is(level: str, attention: Any, readout: type) -> None:
    for cell in (("model=gru",), ("model=rum", "model.cell.lambd=1.0")):
        task = made(*cell, level=level, attention=attention)
        assert type(task.model.readout) is readout
        chosen = asked(task)[:20:3]
        together = task.probabilities(chosen)
        assert together.shape == (len(chosen), len(task.data.babi.classes))
        alone = torch.cat([task.probabilities([question]) for question in chosen])
        torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-12)
        assert len(set(map(tuple, together.tolist()))) > 1


@pytest.mark.parametrize("level", LEVELS)
def test_cells_with_edges_get_the_edges_of_entities(level: str) -> None:
    linked, plain = (made("model=mage_gru", level=level, edges=edges) for edges in ("entities", "none"))
    plain.load_state_dict(linked.state_dict())
    chosen = asked(linked)[:5]
    assert plain.batch_of(chosen).edges is None
    assert not torch.equal(linked.probabilities(chosen), plain.probabilities(chosen))


@pytest.mark.parametrize("attention", ["false", "maybe", 1, 0])
def test_another_attention_is_refused(attention: Any) -> None:
    with pytest.raises(ValueError, match=rf"^task\.attention={attention}: must be true, false or rotational$"):
        made(attention=attention)


def test_evaluation_does_not_depend_on_the_batches() -> None:
    task, other = made(), made(eval_batch_size=7)
    other.load_state_dict(task.state_dict())
    assert scores(other, "val", other) == pytest.approx(scores(task, "val", task), rel=1e-6)


def test_attention_is_computed_with_the_edges_of_the_model() -> None:
    linked = made("model=mage_gru", edges="entities", attention=True)
    chosen = asked(linked)[:4]
    shown, batch = linked.attention(chosen), linked.batch_of(chosen)
    with torch.no_grad():
        outputs = [
            linked.model.run(inputs, lengths=batch.lengths)[0] for inputs in (linked.model_inputs(batch), batch.inputs)
        ]
    with_edges, without = (linked.model.readout.weights(one, batch.lengths) for one in outputs)
    assert torch.equal(shown, with_edges)
    assert not torch.equal(shown, without)


def test_attention_is_returned_for_each_question() -> None:
    task = made(attention=True)
    chosen = asked(task)[3:9]
    weights = task.attention(chosen)
    assert weights.shape == (max(len(question.story) for question in chosen) + 1, len(chosen))
    torch.testing.assert_close(weights.sum(dim=0), torch.ones(len(chosen)).double())
    assert [int((column > 0).sum()) for column in weights.T] == [len(question.story) for question in chosen]
    with pytest.raises(ValueError, match=r"^task\.attention=False: must be true or rotational$"):
        made().attention(chosen)


# --- scores


@pytest.mark.parametrize("qa", [1, 2, "all"])
def test_an_oracle_that_knows_the_facts_is_always_correct(qa: Any) -> None:
    task = made(qa=qa)
    answers = [oracle(question) for question in asked(task)]
    assert answers == [question.answer for question in asked(task)]
    order = iter(task.data.loader("test").order)

    def answer(batch: QuestionBatch) -> Tensor:
        known = [task.data.babi.classes.index(answers[next(order)]) for _ in range(len(batch.answers))]
        return sure_of(task, torch.tensor(known))

    found = scores(task, "test", answer)
    assert found["loss"] == pytest.approx(0, abs=1e-6)
    assert {value for name, value in found.items() if name.startswith("accuracy")} == {1.0}


def majority(task: Any, split: str) -> float:
    """Return the share of the questions of a split whose answer is the most frequent one of their task in training."""
    known: dict[int, list[str]] = {}
    for question in asked(task, "train"):
        known.setdefault(question.task, []).append(question.answer)
    most = {number: max(sorted({*answers}), key=answers.count) for number, answers in known.items()}
    found = [question.answer == most[question.task] for question in asked(task, split)]
    return sum(found) / len(found)


def test_each_result_has_the_majority_accuracy() -> None:
    task = made(qa="all")
    for split in ("val", "test"):
        assert scores(task, split, task)["majority"] == pytest.approx(majority(task, split))


def test_the_majority_answer_is_counted_in_the_training_split_of_each_task() -> None:
    def story(task: int, *answers: str) -> Story:
        return [Question(task, (), ("Who", "?"), answer, ()) for answer in answers]

    train = [story(1, "a", "b", "b"), story(2, "d", "c")]  # of c and d, as frequent, the first in order
    test = [story(1, "a", "b", "a", "b"), story(2, "c", "c", "d")]
    metrics = QuestionMetrics(Babi.of("own", {"train": train, "val": [], "test": test}))
    batch: Any = SimpleNamespace(answers=torch.tensor([0, 1, 0, 1, 2, 2, 3]), tasks=torch.tensor([1] * 4 + [2] * 3))
    metrics.update(torch.zeros(7, 4), batch, torch.tensor(1.0))
    assert metrics.compute()["majority"].item() == pytest.approx(4 / 7)


def test_one_model_for_all_tasks_is_scored_on_each() -> None:
    task = made(qa="all")
    assert task.metrics.names == ("loss", "accuracy", "majority", "accuracy_qa1", "accuracy_qa2")

    def good_at_the_first(batch: QuestionBatch) -> Tensor:
        return sure_of(task, torch.where(batch.tasks == 1, batch.answers, (batch.answers + 1) % 6))

    found = scores(task, "test", good_at_the_first)
    assert (found["accuracy_qa1"], found["accuracy_qa2"], found["accuracy"]) == (1, 0, 0.5)
    assert made(qa="all", monitor="val/accuracy_qa2").monitor == "val/accuracy_qa2"


def test_an_answer_outside_the_training_classes_is_wrong_and_has_no_loss() -> None:
    task = made()
    batch = next(iter(task.data.loader("test")))
    batch = QuestionBatch(*(part[:4] for part in batch[:4]))
    batch = batch._replace(answers=torch.tensor([0, IGNORED, 1, IGNORED]))
    logits = torch.randn(4, 6).double()
    known = torch.tensor([0, 2])
    expected = -logits.log_softmax(dim=1)[known, batch.answers[known]].mean()
    torch.testing.assert_close(task.loss(logits, batch), expected)
    task.metrics.update(sure_of(task, batch.answers.clamp(min=0)), batch, task.loss(logits, batch))
    # and a batch of nothing else spoils no mean
    lost = QuestionBatch(*(part[1:2] for part in batch[:4]))
    assert task.loss(logits[1:2], lost) == 0
    task.metrics.update(logits[1:2], lost, task.loss(logits[1:2], lost))
    found = task.metrics.compute()
    assert found["accuracy"] == pytest.approx(2 / 5)
    assert found["loss"] == pytest.approx(expected.item())


def test_the_baseline_is_the_loss_of_the_answer_frequencies() -> None:
    task = made(qa="all", size="10k")
    classes = task.data.babi.classes
    logits = {}
    for number in {question.task for question in asked(task)}:
        counts = Counter(question.answer for question in asked(task, "train") if question.task == number)
        total = counts.total() + len(classes)
        logits[number] = torch.tensor([math.log((counts[name] + 1) / total) for name in classes])
    found = scores(task, "test", lambda batch: torch.stack([logits[number] for number in batch.tasks.tolist()]))
    assert task.baseline == pytest.approx(found["loss"], rel=1e-5)
    assert task.baseline == pytest.approx(math.log(6), rel=0.02)


# --- where the questions come from


def test_without_a_release_stories_are_generated_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        task = made(generated=False, data_dir=str(tmp_path), qa=1)
    assert "using GENERATED stories" in caplog.text
    assert (task.data_metrics()["generated"], task.data.babi.name) == (1, "generated")
    with pytest.raises(ValueError, match=r"^task\.qa=3: must be an integer from 1 to 2, or all; .* has neither"):
        made(generated=False, data_dir=str(tmp_path), qa=3)
    # the place in a question is not replaced
    with pytest.raises(ValueError, match=rf"^task\.path={tmp_path}/nothing: has neither"):
        made(generated=False, path=str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 Ann ran.\n2 Where is Ann?\n", "line 2: a question without an answer: 'Where is Ann?'"),
        ("1 Ann ran.\n2 Where is An", "line 2: does not end: the file is truncated"),
    ],
)
def test_a_broken_file_is_an_error_of_one_line(tmp_path: Path, text: str, message: str) -> None:
    for part in ("train", "test"):
        (tmp_path / f"qa1_any_{part}.txt").write_text(text)
    with pytest.raises(OptionError) as raised:
        made(generated=False, path=str(tmp_path), qa=1)
    assert str(raised.value) == f"task.path={tmp_path}: {tmp_path}/qa1_any_train.txt, {message}"


def test_order_and_generated_stories_follow_the_seed() -> None:
    def stream(seed: int, data_seed: int | None = None) -> list[list[int]]:
        options = {} if data_seed is None else {"data_seed": data_seed}
        task = made(f"seed={seed}", **options)
        task.data.trainer = SimpleNamespace(max_steps=3, accumulate_grad_batches=1)
        return [batch.inputs.flatten().tolist() for batch in task.data.train_dataloader()]

    assert stream(1) == stream(1) == stream(2, data_seed=1)
    assert stream(1) != stream(2)


# --- drawing and answering


@pytest.mark.parametrize("level", LEVELS)
def test_an_example_ends_with_the_question(level: str) -> None:
    task = made(level=level)
    batch = task.batch_of(asked(task)[:9])
    for row, question in enumerate(asked(task)[:9]):
        source, target, prediction = task.render(batch, batch.answers, row).splitlines()
        assert source.startswith("input       ")
        assert source.endswith(" ".join(question.words).lower())
        assert len(source) <= 120
        assert (target.split(), prediction.split()) == (["target", question.answer], ["prediction", question.answer])
    unknown = batch._replace(answers=torch.full((9,), IGNORED))
    assert "(not in the training data)" in task.render(unknown, batch.answers)


# --- runs


def test_results_contain_the_majority_and_the_source_of_the_questions(answering_by_sentence: Run) -> None:
    run = answering_by_sentence.directory
    results = json.loads((run / "DONE").read_text())
    task = made(qa=2)
    assert results["test/majority"] == pytest.approx(majority(task, "test"))
    assert (results["test/generated"], results["test/stand_ins"]) == (1, 0)
    assert results["test/baseline"] == pytest.approx(task.baseline, rel=0.05)
    assert (run / "examples.txt").read_text().count("prediction") == 3


def test_evaluation_reproduces_the_results(answering_by_sentence: Run, tmp_path: Path) -> None:
    run = answering_by_sentence.directory
    assert invoke(f"run={run}", f"save={tmp_path}/a.json", entry="evaluate").status == 0
    numbers = json.loads((tmp_path / "a.json").read_text())["numbers"]
    results = json.loads((run / "DONE").read_text())
    for name in ("test/accuracy", "test/loss", "test/majority"):
        assert numbers[name] == pytest.approx(results[name], abs=1e-6)


@pytest.mark.slow
def test_a_network_learns_the_place_of_a_person() -> None:
    torch.manual_seed(1)
    task = made("model.cell.hidden_size=32", "model.embedding_size=16", qa=1, attention=True)
    task = task.float().train()
    optimizer = torch.optim.Adam(task.parameters(), lr=0.01)
    encoded = task.data.examples("train")
    order = np.random.default_rng(0)
    for _ in range(250):
        batch = encoded.batch(order.choice(len(encoded), 32))
        optimizer.zero_grad()
        task.loss(task(batch), batch).backward()
        optimizer.step()
    found = scores(task.eval(), "test", task)
    assert found["accuracy"] > 0.7 > 0.3 > found["majority"]
