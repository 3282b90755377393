"""Logical inference: inputs of the model, accuracies by operators, and runs."""

import csv
import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from gyral.applications.logic.generation import relate_formulas
from gyral.applications.logic.task import TESTED, LogicalInferenceTask
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from tests.helpers.running import SMALL, build_task, invoke

MODEL = ("model=gru", "model.cell.hidden_size=6", "model.embedding_size=5")
TASK = ("task=logical_inference", "task.generated=true", "task.train_operators=1")


@functools.cache
def made() -> LogicalInferenceTask:
    task: LogicalInferenceTask = build_task(*TASK, *MODEL).double().eval()
    return task


def test_both_formulas_are_read_by_the_same_network_and_padding_has_no_effect() -> None:
    task = made()
    batch = next(iter(task.data.loader("test")))
    longer = batch._replace(inputs=torch.nn.functional.pad(batch.inputs, (0, 0, 0, 3)))
    with torch.no_grad():
        logits = task(batch)
        torch.testing.assert_close(task(longer), logits)
        for row in (0, 17):
            formulas = batch.inputs[row].t()
            alone = [tokens[tokens != 0] for tokens in formulas]
            states = [task.model.run(tokens.unsqueeze(0))[0][-1] for tokens in alone]
            padded = task.model.readout(torch.cat(states).unsqueeze(0), torch.empty(0))
            torch.testing.assert_close(padded[0], logits[row])


def test_a_test_reports_the_accuracy_by_operators() -> None:
    task = made()
    right: dict[str, list[bool]] = {"all": [], **{str(number): [] for number in TESTED}}
    for batch in task.data.loader("test"):
        with torch.no_grad():
            logits = task(batch)
        task.metrics.update(logits, batch, task.loss(logits, batch))
        for row, correct in enumerate((logits.argmax(dim=1) == batch.targets).tolist()):
            right["all"].append(correct)
            for number in TESTED:
                if batch.categories[row, number]:
                    right[str(number)].append(correct)
    results = task.test_results()
    assert results["accuracy"] == pytest.approx(sum(right["all"]) / len(right["all"]))
    for number in TESTED:
        own = right[str(number)]
        assert len(own) == 40
        assert results[f"accuracy_{number}_operators"] == pytest.approx(sum(own) / 40)
    assert results["substitute"] == 1


def test_a_written_pair_is_answered_and_the_correct_relation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    task = made()
    caplog.set_level("INFO")
    [line] = relate_formulas(task, formulas="(a(or b)), a")
    probabilities = task.probabilities(["(", "a", "(", "or", "b", ")", ")"], ["a"])
    assert probabilities.sum().item() == pytest.approx(1)
    assert line.startswith("( a ( or b ) ) ")
    assert line.endswith(f" {100 * probabilities.max():.0f} %)\n")
    assert "right relation: > (reverse entailment)" in caplog.text
    for wrong, reason in (
        ("a", "must be two formulas with a comma between them"),
        ("a, (b", "'( b' ends before the formula is complete"),
    ):
        with pytest.raises(OptionError) as raised:
            next(relate_formulas(task, formulas=wrong))
        assert str(raised.value) == f"formulas={wrong}: {reason}"


def test_pairs_of_formulas_have_predictions_and_metrics() -> None:
    task = made()
    frame = task.predict(["(a(or b)), a", "", "a, a"])
    assert frame.target.tolist() == [">", "="]
    expected = task.probabilities(["(", "a", "(", "or", "b", ")", ")"], ["a"]).numpy()
    assert frame.filter(like="probability").iloc[0].to_numpy() == pytest.approx(expected, abs=1e-6)
    assert frame.attrs["metrics"]["accuracy"] == pytest.approx((frame.prediction == frame.target).mean())
    with pytest.raises(OptionError, match=r"^data=lines: line 2: must be two formulas with a comma between them"):
        task.predict(["a, a", "b"])


def test_a_run_logs_the_accuracies_by_operators_and_that_the_data_is_generated(tmp_path: Path) -> None:
    kept = [option for option in SMALL if not option.startswith(("task.", "trainer.", "callbacks.", "logger"))]
    steps = ("trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.accelerator=cpu", "logger=csv")
    outcome = invoke(*kept, *steps, *TASK, *MODEL[::2], f"hydra.run.dir={tmp_path}/run")
    assert outcome.status == 0, outcome.err
    assert "using GENERATED pairs of formulas" in outcome.out + outcome.err
    assert "accuracy, operators: 7" in outcome.out
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    assert {f"test/accuracy_{number}_operators" for number in TESTED} <= {*rows[-1]}
    answered = invoke(f"run={tmp_path}/run", "formulas=(a (and b)), a", entry="generate")
    assert answered.status == 0, answered.err
    assert answered.out.startswith("( a ( and b ) ) ")


def test_the_row_of_on_lstm_has_the_size_of_the_model_of_the_authors() -> None:
    task = build_task("experiment=on_lstm_paper/logical_inference/on_lstm", "task.generated=true")
    # theirs has two biases per gate, which are added
    assert sum(parameter.numel() for parameter in task.parameters()) == 1_535_143 - (2 * 40 + 4 * 400)
    [recurrent] = [module for module in task.modules() if isinstance(module, Recurrent)]
    assert recurrent.backend == "fused"
    assert (task.model.input_dropout.probability, task.model.readout.dropout.p) == (0.2, 0.2)
