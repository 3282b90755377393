"""`task=sequences`: the task that follows from a file, its baseline, its log line, and its pictures."""

import json
import logging
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from gyral.core.errors import OptionError, UserError
from gyral.data.batching import Batch
from gyral.data.sequences.files import open_columns
from gyral.data.sequences.new import read_new
from gyral.figures.confusion import print_confusion
from gyral.runs.evaluation_report import Request
from gyral.tasks import steps
from gyral.tasks.class_metrics import MOST_CLASSES, WeightedClassification
from gyral.tasks.metrics import Determination
from gyral.tasks.objective import Classification, Regression
from gyral.tasks.rendering import align, describe_value
from gyral.tasks.sequences import SequencesData
from gyral.training import build
from tests.helpers.running import build_task, compose_config, invoke, read_rows, train
from tests.helpers.sequences import sequences_file

RUN = ("model=goru",)  # of small_runs.py in tests/faults
# for the contract of tasks
OPTIONS: dict[str, Any] = {"data": str(sequences_file()), "val_fraction": 0.3, "test_fraction": 0.3}
ALTERNATIVES: dict[str, list[Any]] = {
    "data": [str(sequences_file(1))],
    "inputs": ["a", "tokens", ["b", "a"]],
    "targets": ["a", "classes", ["a", "b"]],
    "lengths": [None],
    "split": ["part"],
    "sequence": ["part"],
    "time": ["order"],
    "per_step": [False],
    "objective": ["regression"],
    "val_fraction": [0.1],
    "test_fraction": [0.1],
}
ROWS_OF_STEPS = {"inputs": "a", "targets": "classes", "lengths": None}
NO_EFFECT = ("schema",)  # a task with it has no data
NEEDED: dict[str, dict[str, Any]] = {
    **{key: {"targets": "classes"} for key in ("stratify", "class_weights", "sampling")},
    "time_gaps": {**ROWS_OF_STEPS, "sequence": "part", "time": "order"},
    "objective": {"targets": "classes"},
    "sequence": ROWS_OF_STEPS,
    "time": {**ROWS_OF_STEPS, "sequence": "part"},
}


def faults(folder: Path, rows: int = 60, every: int = 10) -> Path:
    """Write sequences with a missing value in each, of which a few have the class 2, the others 1."""
    generator = np.random.default_rng(0)
    path = folder / "faults.csv"
    with path.open("w", encoding="utf-8") as file:
        print("id;hour;a;b;state", file=file)
        for row in range(rows):
            for step in range(4 + row % 3):
                a, b = generator.normal(20, 3), generator.normal(1000, 50)
                cells = [f"{a:.2f}" if step != 1 else "", f"{b:.1f}" if step != 2 else "NA"]
                state = 2 if row % every == 0 else 1
                print(row, f"2024-01-01T{(0, 1, 4, 9, 16, 20)[step]:02d}:00+02:00", *cells, state, sep=";", file=file)
    return path


OF_FAULTS = {"sequence": "id", "time": "hour", "inputs": ["a", "b"], "targets": "state", "missing": "mask"}


def effects(task: Any) -> list[Any]:
    """Return what the preprocessing of the inputs changes."""
    return [task.model_inputs(next(iter(task.data.loader("val")))).tolist()]


SMALL = ("task=sequences", "model=gru", "model.cell.hidden_size=4")


@pytest.mark.parametrize(
    ("options", "objective", "readout", "baseline"),
    [
        ({"inputs": "tokens", "targets": "classes"}, Classification, True, math.log(3)),
        ({"inputs": "tokens", "targets": "tokens"}, Classification, False, math.log(5)),
        ({"targets": "a"}, Regression, False, 1),
        ({"inputs": ["a", "b"], "targets": "a", "per_step": False}, Regression, True, 1),
    ],
)
def test_the_file_decides_what_is_predicted(
    options: dict[str, Any], objective: type, readout: bool, baseline: float
) -> None:
    task = build_task(*SMALL, data=str(sequences_file()), **options)
    assert isinstance(task.objective, objective)
    assert (task.model.readout is not None) == readout
    assert task.baseline == pytest.approx(baseline, rel=0.5)
    batch = next(iter(task.data.loader("val")))
    task.loss(task(batch), batch).backward()
    assert all(parameter.grad.isfinite().all() for parameter in task.parameters())
    lines = task.render(batch, task.predict(batch)).splitlines()
    assert [line.split()[0] for line in lines] == ["input", "target", "prediction"]


def test_baseline_is_the_loss_of_the_best_predictor_without_inputs(tmp_path: Path) -> None:
    split = ["train"] * 4 + ["val"] * 2 + ["test"] * 2
    arrays = {"inputs": np.ones((8, 3)), "y": np.arange(8.0), "c": np.array([0, 0, 0, 1, 0, 1, 1, 1])}
    np.savez(tmp_path / "mine.npz", split=split, **arrays)
    options = {"data": str(tmp_path / "mine.npz")}
    regression = build_task(*SMALL, targets="y", objective="regression", **options)
    assert regression.baseline == pytest.approx((4.5**2 + 5.5**2) / 2)
    assert build_task(*SMALL, targets="c", **options).baseline == pytest.approx(-math.log(2 / 6))


def test_contents_of_the_file_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        build_task(*SMALL, data=str(sequences_file()))
    assert caplog.messages[-1] == (
        "sequences_0.npz: 48 train, 6 val, 6 test sequences of 2 to 6 steps; inputs: 2 real values; "
        "targets: a real value per step; one pass over the training split takes 2 steps"
    )
    with caplog.at_level(logging.INFO):
        build_task(*SMALL, "task.batch_size=48", data=str(sequences_file()))
    assert caplog.messages[-1].endswith("takes 1 step")


def test_a_missing_file_is_not_null() -> None:
    with pytest.raises(OptionError, match=r"^task\.data=null: must be a \.csv, "):
        build_task(*SMALL)


def test_options_for_tokens_are_refused_for_real_inputs() -> None:
    for option, value, said in (
        ("embedding_size", 5, "model.embedding_size=5: must be null: the inputs are real vectors, not tokens"),
        ("embedding_dropout", 0.5, "model.embedding_dropout=0.5: must be 0: the inputs are real vectors, not tokens"),
        ("tied", True, "model.tied=True: must be false: the inputs are real vectors, not tokens"),
    ):
        with pytest.raises(OptionError) as raised:
            build_task(*SMALL, f"model.{option}={value}", data=str(sequences_file()))
        assert str(raised.value) == said


def test_a_model_of_another_kind_is_refused() -> None:
    config = compose_config("task=sequences", "model=gru")
    OmegaConf.update(config.task, "data", str(sequences_file()))
    config.model = {"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 2}
    with pytest.raises(
        OptionError, match=r"^model\._target_=torch\S+Linear: task=sequences needs a SequenceModel, one "
    ):
        build.build_task(config)


def test_an_unusable_file_is_an_error_of_one_line_without_a_run_directory(tmp_path: Path) -> None:
    targets = np.zeros((5, 3))
    targets[3, 1] = math.nan
    np.savez(tmp_path / "mine.npz", inputs=np.ones((5, 3)), targets=targets)
    outcome = invoke(*SMALL, f"task.data={tmp_path}/mine.npz", "logger=none", f"hydra.run.dir={tmp_path}/run")
    place = f"task.data={tmp_path}/mine.npz: array targets, row 3, step 1: nan; must be a finite number (float32)"
    assert outcome.error == place
    assert not (tmp_path / "run").exists()


def test_lines_are_aligned_and_the_middle_of_long_ones_is_left_out() -> None:
    assert align({"input": ["1", "22", "3"], "target": ["4", "5", "666"], "prediction": ["7"]}).splitlines() == [
        "input       1 22   3",
        "target      4  5 666",
        "prediction         7",
    ]
    lines = align({"input": [str(1000 + i) for i in range(90)], "target": ["7"]}).splitlines()
    assert lines[0].startswith("input       1000 1001 ")
    assert lines[0].endswith("… 1086 1087 1088 1089")
    assert max(map(len, lines)) <= 120
    assert len(lines[0]) == len(lines[1])
    shown = lines[0].count(" 10")
    assert f" …{90 - shown}… " in lines[0]
    assert describe_value([0.123456, -2.0, 3]) == "0.123,-2,3"


def test_metrics_are_independent_of_batches_and_scale() -> None:
    objective = Regression(3)
    targets = torch.randn(40, 5, 3) * torch.tensor([1e-4, 1e3, 10]) + torch.tensor([0.0, 1e4, 1e8])
    outputs = targets + 0.3 * targets.std(dim=(0, 1)) * torch.randn_like(targets)
    targets[::3, 2:] = math.nan
    present = objective.has_target(targets)
    residuals = (outputs - targets)[present].double().square().sum(dim=0)
    deviations = targets[present].double().sub(targets[present].double().mean(dim=0)).square().sum(dim=0)
    wanted = (1 - residuals / deviations).mean().item()
    assert 0.8 < wanted < 0.95
    for sizes in ([40], [1, 3, 36], [7] * 5 + [5]):
        metrics = objective.metrics(per_step=True)
        for output, target in zip(outputs.split(sizes), targets.split(sizes), strict=True):
            batch = type("Batch", (), {"targets": target, "answers": None})
            metrics.update(output, batch, objective.loss(output, target))
        values = metrics.compute()
        assert values["r2"].item() == pytest.approx(wanted, rel=1e-5)
        assert values["loss"].item() == pytest.approx(values["mse"].item(), rel=1e-5)


@pytest.mark.parametrize("per_step", [False, True])
def test_the_loss_of_many_weighted_classes_is_independent_of_batches(per_step: bool) -> None:
    classes = MOST_CLASSES + 1  # without a confusion matrix
    objective = WeightedClassification(np.where(np.arange(classes) == 0, 100.0, 1.0))
    logits = torch.randn(40, 3, classes) if per_step else torch.randn(40, classes)
    targets = torch.randint(1, classes, logits.shape[:-1])
    targets[:10] = 0
    metrics = objective.metrics(per_step)
    for part in (slice(0, 10), slice(10, 40)):
        batch = Batch(targets[part], targets[part])
        metrics.update(logits[part], batch, objective.loss(logits[part], targets[part]))
    assert metrics.compute()["loss"].item() == pytest.approx(objective.loss(logits, targets).item(), rel=1e-5)


@pytest.mark.parametrize("processes", [2, 3, 9])
def test_processes_that_share_a_batch_have_the_loss_of_the_whole(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = build_task(*SMALL, data=str(sequences_file())).eval()
    batch = task.data.sequences.batch(np.arange(7))
    whole = task.loss(task(batch), batch)
    monkeypatch.setattr(steps, "world_size", lambda: processes)
    losses = []
    for number in range(processes):
        monkeypatch.setattr(steps, "rank", lambda number=number: number)
        rows = task.on_before_batch_transfer(batch, 0)
        losses.append(task._weight * task.loss(task(rows), rows) if task._weight else torch.zeros(()))
    torch.testing.assert_close(torch.stack(losses).mean(), whole)


@pytest.mark.parametrize("rows", [0, 7, 20])
def test_processes_share_r2(rows: int) -> None:
    targets = torch.randn(20, 2) + torch.tensor([0.0, 1e7])
    outputs = targets + torch.randn(20, 2).round()
    whole, shared, *parts = (Determination(2) for _ in range(4))
    whole.update(outputs, targets)
    shared.update(outputs[:0], targets[:0])
    for part, own in zip(parts, (slice(rows), slice(rows, None)), strict=True):
        part.update(outputs[own], targets[own])
    for name, reduce in shared._reductions.items():
        stacked = torch.stack([getattr(part, name) for part in parts])
        setattr(shared, name, reduce(stacked) if callable(reduce) else stacked)  # as torchmetrics does
    torch.testing.assert_close(shared.compute(), whole.compute())


@pytest.mark.parametrize(("outputs", "expected"), [([5.0, 5.0, 5.0], 1.0), ([4.0, 5.0, 6.0], 0.0)])
def test_r2_of_constant_targets_is_one_or_zero(outputs: list[float], expected: float) -> None:
    metrics = Regression(1).metrics(per_step=True)
    batch = type("Batch", (), {"targets": torch.full((3, 1), 5.0)})
    metrics.update(torch.tensor(outputs).unsqueeze(1), batch, torch.tensor(0.0))
    assert metrics.compute()["r2"] == expected


def test_targets_of_another_shape_than_the_outputs_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"shapes \(4, 3, 1\) and \(4, 3\), which must be equal"):
        Regression(1).loss(torch.zeros(4, 3, 1), torch.zeros(4, 3))


def test_labels_are_shown_and_must_be_those_of_the_checkpoint(tmp_path: Path) -> None:
    labels = np.array(["left", "right"] * 10)
    np.savez(
        tmp_path / "mine.npz", inputs=np.ones((20, 3)) / 2, targets=labels, split=["train", "train", "val", "test"] * 5
    )
    task = build_task(*SMALL, data=str(tmp_path / "mine.npz"))
    batch = next(iter(task.data.loader("test")))
    lines = task.render(batch, task.predict(batch)).splitlines()
    assert lines[1].split() == ["target", "right"]
    assert lines[2].split()[1] in ("left", "right")
    checkpoint: dict[str, Any] = {}
    task._losses = []
    task.on_save_checkpoint(checkpoint)
    assert checkpoint["labels"] == ["left", "right"]
    task.check_checkpoint(checkpoint)
    with pytest.raises(
        UserError, match=r"^mine.npz: the training split has the labels left, right; those of the checkpo"
    ):
        task.check_checkpoint({"labels": ["down", "up"]})


def test_missing_values_are_filled_and_marked_and_inputs_standardized(tmp_path: Path) -> None:
    options = {**OF_FAULTS, "data": str(faults(tmp_path)), "stratify": True}
    task = build_task(*SMALL, **options, standardize=True, time_gaps=True)
    assert task.class_names == ("1", "2")
    assert task.preprocessing.output_size == 5  # a, b, the gap, and which of a and b are missing
    sequences = task.data.sequences
    rows = sequences.splits["train"]
    raw = sequences.batch(rows).inputs
    batch = sequences.batch(rows)
    inputs = task.model_inputs(batch)
    inside = torch.arange(raw.shape[1]) < batch.lengths.unsqueeze(1)
    torch.testing.assert_close(inputs[..., 3:], raw[..., :2].isnan().float())
    assert (inputs[:, 1, 0] == 0).all()
    assert (inputs[:, 2, 1] == 0).all()
    for column in range(3):
        known = inputs[..., column][inside & ~raw[..., column].isnan()]
        assert known.mean().item() == pytest.approx(0, abs=1e-4)
        assert known.std(correction=0).item() == pytest.approx(1, abs=1e-4)
    assert raw[0, :4, 2].tolist() == [0, 3600, 3 * 3600, 5 * 3600]
    for precision in ("bf16-true", "16-true"):  # which would convert the inputs before
        task._trainer = SimpleNamespace(precision=precision)
        with pytest.raises(
            OptionError, match=rf"^task\.standardize=True: must be false with .*={precision}, which rounds"
        ):
            task.setup("fit")
    plain = build_task(*SMALL, **options)
    filled = plain.model_inputs(batch._replace(inputs=raw[..., :2]))
    assert filled[0, 1, 0].item() == pytest.approx(20, abs=1)
    assert torch.equal(filled[0, 0, :2], raw[0, 0, :2])
    with pytest.raises(OptionError, match=r"faults\.csv: column a, row 1: is empty; must have a number"):
        build_task(*SMALL, **{**options, "missing": "refuse"})


def test_a_checkpoint_has_what_new_data_need(tmp_path: Path) -> None:
    options = {**OF_FAULTS, "standardize": True, "time_gaps": True}
    task = build_task(*SMALL, **options, data=str(faults(tmp_path)), stratify=True).eval()
    checkpoint: dict[str, Any] = {}
    task._losses = []
    task.on_save_checkpoint(checkpoint)
    task.check_checkpoint(checkpoint)
    other = build_task(*SMALL, **options, schema=checkpoint["schema"]).eval()  # without the file
    other.load_state_dict(task.state_dict())
    new, is_labelled, _ = read_new(open_columns(faults(tmp_path, rows=5)), other.data.sequences.schema)
    batch = new.batch(np.arange(5))
    assert is_labelled
    assert torch.equal(batch.targets, task.data.sequences.batch(np.arange(5)).targets)
    assert new.names == ("0", "1", "2", "3", "4")
    torch.testing.assert_close(other(batch), task(task.data.sequences.batch(np.arange(5))))
    assert [other.class_names[number] for number in other.predict(batch)]
    swapped = {**checkpoint, "schema": {**checkpoint["schema"], "inputs": ["b", "a"]}}
    with pytest.raises(UserError, match=r"^faults\.csv: the inputs are a, b; those of the checkpoint are b, a$"):
        task.check_checkpoint(swapped)
    for wrong in ({}, {**checkpoint["schema"], "labels": 3}, {**checkpoint["schema"], "counts": [1]}):
        with pytest.raises(OptionError, match=r"^task\.schema=.*: schema"):
            build_task(*SMALL, schema=wrong)


def test_rare_classes_are_measured_and_weighted(tmp_path: Path) -> None:
    options = {**OF_FAULTS, "data": str(faults(tmp_path)), "stratify": True}
    task = build_task(*SMALL, **options)
    assert task.data_metrics()["majority"] == pytest.approx(5 / 6)
    names = ("loss", "accuracy", "balanced_accuracy", "macro_f1", "auroc", "average_precision")
    assert task.metrics.names == names
    batch = task.data.sequences.batch(np.arange(60))
    majority = torch.tensor([1.0, 0.0]).expand(60, 2)  # each sequence has the class 1
    task.metrics.update(majority, batch, task.loss(majority, batch))
    values = {name: value.item() for name, value in task.metrics.compute().items()}
    assert values["accuracy"] == pytest.approx(0.9)
    assert values["balanced_accuracy"] == pytest.approx(0.5)
    assert values["macro_f1"] == pytest.approx(0.5 * 2 * 54 / (60 + 54))
    assert values["auroc"] == pytest.approx(0.5)
    assert values["average_precision"] == pytest.approx(0.1)

    weighted = build_task(*SMALL, **options, class_weights="balanced")
    assert weighted.baseline == pytest.approx(math.log(2), rel=0.1)
    wrong = torch.tensor([[0.0, 3.0]]).expand(60, 2)  # the opposite error has the same weight
    train = task.data.sequences.batch(task.data.sequences.splits["train"])
    both = [weighted.loss(sign * wrong[: len(train.targets)], train).item() for sign in (1, -1)]
    assert both[0] == pytest.approx(both[1], rel=1e-5)
    assert task.loss(wrong, batch) > 2 * task.loss(-wrong, batch)
    parts = [np.arange(0, 13), np.arange(13, 60)]
    for rows in parts:
        part = task.data.sequences.batch(rows)
        weighted.metrics.update(wrong[rows], part, weighted.loss(wrong[rows], part))
    assert weighted.metrics.compute()["loss"].item() == pytest.approx(weighted.loss(wrong, batch).item(), rel=1e-5)

    drawn = build_task(*SMALL, **options, sampling="balanced", batch_size=10)
    drawn.data.trainer = SimpleNamespace(max_steps=40, accumulate_grad_batches=1)
    classes = torch.cat([each.targets for each in drawn.data.train_dataloader()]).bincount()
    assert 0.4 < (classes[1] / classes.sum()).item() < 0.6


def test_each_split_has_its_own_baseline_and_most_frequent_class(tmp_path: Path) -> None:
    zeros = {"train": 30, "val": 18, "test": 5}  # of 40, 20 and 20
    sizes = {"train": 40, "val": 20, "test": 20}
    classes = [int(row >= zeros[split]) for split, count in sizes.items() for row in range(count)]
    parts = [split for split, count in sizes.items() for _ in range(count)]
    np.savez(tmp_path / "mine.npz", inputs=np.ones((80, 3)), targets=classes, split=parts)
    words = ("task=sequences", f"task.data={tmp_path}/mine.npz", "model=gru", "trainer.max_steps=1", "threads=1")
    run = train(tmp_path / "run", *words)
    share = 31 / 42  # of class 0 in training, with one more of each
    for split, count in sizes.items():
        loss = -(zeros[split] * math.log(share) + (count - zeros[split]) * math.log(1 - share)) / count
        outcome = invoke(f"run={run}", f"split={split}", f"save={tmp_path}/{split}.json", entry="evaluate")
        assert outcome.status == 0, outcome.err
        metrics = json.loads((tmp_path / f"{split}.json").read_text())["numbers"]
        assert metrics[f"{split}/baseline"] == pytest.approx(loss)
        assert metrics[f"{split}/majority"] == pytest.approx(zeros[split] / count)
    [row] = [row for row in read_rows(run) if row["val/baseline"]]
    assert float(row["val/majority"]) == pytest.approx(18 / 20)


def test_a_sequence_without_a_class_is_not_drawn(tmp_path: Path) -> None:
    labels = np.array(["", "a", "b", "b", "b"] * 8)
    np.savez(tmp_path / "mine.npz", inputs=np.ones((40, 3)), targets=labels)
    data = SequencesData(data=tmp_path / "mine.npz", sampling="balanced")
    own = labels[data.sequences.splits["train"]]
    of_none, of_a, of_b = (data.weights[own == label].sum() for label in ("", "a", "b"))
    assert (of_none, of_a) == (0, pytest.approx(of_b))


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"targets": "a", "class_weights": "balanced"},
        "task.class_weights=balanced: must be none: the targets are not cl",
    ),
    ({"targets": "a", "sampling": "balanced"}, "task.sampling=balanced: must be none: there is no class for each seq"),
    ({"sampling": "balanced", "class_weights": "balanced"}, "task.sampling=balanced: must be none with class_weights"),
    ({"class_weights": "rare"}, "task.class_weights=rare: must be one of none, balanced"),
    ({"missing": "mean"}, "task.missing=mean: must be one of refuse, mask"),
    ({"time_gaps": True}, "task.time_gaps=True: needs time, the column with the time of each step, and sequence"),
    ({"targets": "a", "stratify": True}, "task.stratify=True: must be false: array a has no class for each sequence"),
    ({"split": "part", "stratify": True}, "task.stratify=True: must be false: array part has the splits"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_options_that_do_not_fit_are_refused_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        build_task(*SMALL, data=str(sequences_file()), **{"targets": "classes", **options})
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


def test_log_and_confusion_name_the_classes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        task = build_task(*SMALL, **OF_FAULTS, data=str(faults(tmp_path)), stratify=True)
    assert "targets: 2 classes (1 91.7 %, 2 8.3 %) per sequence" in caplog.messages[-1]
    numbers = print_confusion(task, Request("gru", str(tmp_path / "table.md"), ""), confusion="train")
    assert sum(numbers[f"{target} as {predicted}"] for target in "12" for predicted in "12") == len(
        task.data.sequences.splits["train"]
    )
    assert "predicted 2" in (tmp_path / "table.md").read_text()
    assert "The most frequent class, 1, has 9" in capsys.readouterr().out
    regression = build_task(*SMALL, data=str(sequences_file()), targets="a")
    with pytest.raises(OptionError, match=r"^confusion=test: the targets are not classes"):
        print_confusion(regression, Request("gru", None, ""))
