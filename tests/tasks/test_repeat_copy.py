"""Repeat copy against a plain construction of single sequences."""

import math
from typing import Any

import pytest
import torch

from gyral.core.errors import OptionError
from gyral.tasks.repeat_copy import RepeatCopyData
from tests.helpers.running import build_task

RUN = ("model=dnc", "model.cell.slots=6", "model.cell.width=4")  # of small_runs.py in tests/faults


def data(**options: Any) -> RepeatCopyData:
    sizes = {"batch_size": 40, "val_batches": 1, "test_batches": 1, "data_seed": 3}
    task = {"bits": 4, "lengths": [1, 3], "repeats": [1, 4], "test_lengths": [], "test_repeats": []}
    return RepeatCopyData(**{**task, "end_marker": True, "repeats_scale": 10.0, **sizes, **options})


@pytest.mark.parametrize(
    "options",
    [{}, {"bits": 8, "lengths": [1, 20], "repeats": [1, 1], "end_marker": False, "repeats_scale": 1.0}],
    ids=["DNC", "NTM copy"],
)
def test_layout(options: dict[str, Any]) -> None:
    made = data(**options)
    [batch] = made.loader("train")
    lengths, repeats = set(), set()
    for row in range(40):
        steps, length = int(batch.lengths[row]), int(batch.write[row].sum()) - 2
        inputs, targets = batch.inputs[row], batch.targets[row]
        count = round(inputs[length + 1, -1].item() * made.repeats_scale)
        lengths.add(length)
        repeats.add(count)
        assert steps == length * (count + 1) + 2 + made.end_marker
        vectors = inputs[1 : length + 1, : made.bits]
        assert set(vectors.unique().tolist()) <= {0, 1}
        assert inputs[:, -2].nonzero().flatten().tolist() == [0], "the start flag"
        assert inputs[:, -1].nonzero().flatten().tolist() == [length + 1], "the number of repeats"
        assert inputs[0, :-2].sum() == inputs[length + 1 :, :-1].sum() == 0
        answer = targets[length + 2 : steps]
        assert targets[: length + 2].isnan().all()
        assert targets[steps:].isnan().all()
        assert torch.equal(answer[: length * count, : made.bits], vectors.repeat(count, 1))
        if made.end_marker:
            assert answer[-1].tolist() == [0] * made.bits + [1]
            assert answer[:-1, -1].sum() == 0
        assert batch.write[row].tolist() == [step < length + 2 for step in range(len(inputs))]
    (shortest, longest), (fewest, most) = made.ranges[0]
    assert (min(lengths), max(lengths)) == (shortest, longest)
    assert repeats == set(range(fewest, most + 1))


def test_further_tests_have_their_lengths_and_repeats() -> None:
    made = data(test_lengths=[5, 9], test_repeats=[7])
    assert made.categories == ["5", "9", "7_repeats"]
    own, *further = made.loader("test")
    assert own.categories.any(dim=0).tolist() == [True, False, False, False]
    for index, (batch, length) in enumerate(zip(further, (5, 9, None), strict=True)):
        found = batch.write.sum(dim=1) - 2
        assert found.unique().tolist() == ([length] if length else [1, 2, 3])
        counts = (batch.inputs[..., -1].sum(dim=1) * 10).round()
        assert counts.unique().tolist() == ([1, 2, 3, 4] if length else [7])
        assert batch.categories.all(dim=0).tolist() == [place == 1 + index for place in range(4)]


def test_a_test_reports_the_share_of_wrong_bits_at_each_length() -> None:
    task = build_task("task=repeat_copy", "model=gru", test_lengths=[4], test_repeats=[3], test_batches=1, batch_size=6)
    for batch in task.data.loader("test"):
        outputs = 100 * batch.targets.nan_to_num() - 50
        if batch.categories[:, 1].all():  # one wrong bit in one sequence
            outputs[2, 6, 0] *= -1
        task.metrics.update(outputs, batch, task.loss(outputs, batch))
    results = task.test_results()
    assert {name: results[name] for name in ("wrong_bits", "wrong_bits_3_repeats")} == {
        "wrong_bits": 0,
        "wrong_bits_3_repeats": 0,
    }
    assert results["sequence_accuracy_4"] == pytest.approx(5 / 6)
    assert 0 < results["wrong_bits_4"] < 0.01
    assert results["loss"] == pytest.approx(0, abs=1e-6)


def test_the_published_sizes() -> None:
    task = build_task("task=repeat_copy", "model=gru")
    assert task.model.input_size == 6
    assert task.objective.output_size == 5
    reserved: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gyral.tasks.base.SequenceTask.reserve", lambda task, writes: reserved.append(writes))
        options = {"bits": 8, "lengths": [1, 20], "repeats": [1, 1], "end_marker": False, "test_lengths": [30, 120]}
        task = build_task("task=repeat_copy", "model=gru", **options)
    assert reserved == [122]
    assert task.objective.output_size == 8
    assert task.baseline == math.log(2)


def test_baseline_is_the_entropy_of_the_answers() -> None:
    options = {"batch_size": 20_000, "val_batches": 1, "lengths": [2, 2], "repeats": [1, 3]}
    task = build_task("task=repeat_copy", "model=gru", **options)
    [batch] = task.data.loader("val")
    frequencies = batch.targets.nanmean(dim=(0, 1))
    logits = (frequencies / (1 - frequencies)).log().expand(*batch.targets.shape)
    assert task.loss(logits, batch).item() == pytest.approx(task.baseline, rel=5e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bits": 0}, "bits=0: must be an integer from 1 to 10000"),
        ({"lengths": [3]}, "lengths=[3]: must be 2 integers in increasing order ≥ 1, such as [2, 4]"),
        ({"repeats": [0, 1]}, "repeats=[0, 1]: must be 2 integers in increasing order ≥ 1, such as [2, 4]"),
        ({"test_lengths": [5, 3]}, "test_lengths=[5, 3]: must be increasing integers ≥ 1, such as [2, 4]"),
        ({"test_repeats": ["a"]}, "test_repeats=['a']: must be increasing integers ≥ 1, such as [2, 4]"),
        ({"end_marker": 1}, "end_marker=1: must be true or false"),
        ({"repeats_scale": 0}, "repeats_scale=0: must be a finite number > 0"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said
