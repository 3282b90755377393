"""The benchmark of the training loop: what it reports, and that it refuses to when the two loops differ."""

import json
from typing import Any

import pytest
import torch

from benchmarks import train_loop

TINY = [
    "model=gru",
    "steps=2",
    "rounds=1",
    "threads=1",
    "trainer.log_every_n_steps=2",
    "task.batch_size=4",
    "task.train_size=16",
    "task.val_size=4",
    "model.cell.hidden_size=8",
]
RECALL = [*TINY, "case=recall", "task.length=4"]


@pytest.fixture(autouse=True)
def _global_state(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put back what a run seeds and sets for its process."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")
    yield
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(False)


def test_reports_a_row_per_case_and_model_in_table_and_file(capsys, tmp_path):
    path = tmp_path / "train_loop.jsonl"
    arguments = [argument for argument in TINY if not argument.startswith(("model=", "rounds="))]
    words = ("model=gru,lstm", "case=tiny,copy", "task.delay=3", "rounds=2")
    assert train_loop.main([*arguments, *words, f"json={path}"]) == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["case"], row["model"]) for row in rows] == [
        ("tiny", "gru"),
        ("tiny", "lstm"),
        ("copy", "gru"),
        ("copy", "lstm"),
    ]
    assert {(row["case"], row["batch"], row["time_steps"], row["hidden"]) for row in rows} == {
        ("tiny", 4, 5, 8),
        ("copy", 4, 19, 8),
    }
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| tiny", "| copy"))]
    assert len(lines) == len(rows)
    for row, line in zip(rows, lines, strict=True):
        assert len(line.split("|")) == len(train_loop.COLUMNS) + 6
        assert f"{row['ratio']:.3f}" in line
        assert row["ratio"] == pytest.approx(row["training_ms"] / row["bare_ms"])
        assert row["added_ms"] == pytest.approx(row["training_ms"] - row["bare_ms"])
        shares = ("data_ms", "callbacks_ms", "logging_ms")
        assert all(row[key] > 0 for key in ("bare_ms", "training_ms", *shares))
        assert row["added_ms"] == pytest.approx(sum(row[key] for key in (*shares, "lightning_ms")))
        assert (row["steps"], row["rounds"], row["threads"]) == (2, 2, 1)
        assert "task.batch_size=4" in row["overrides"]
        assert {"torch", "lightning", "cpu", "cores", "commit", "date"} <= row.keys()


def test_a_task_of_the_command_line_has_its_own_sizes(capsys):
    assert train_loop.main([*TINY, "task=recall", "task.length=6", "callbacks=none"]) == 0
    printed = capsys.readouterr().out
    assert "| RecallTask | gru   | 4 × 9 × 8 |" in printed


def test_random_masks_are_the_same_in_both_loops_and_progress_is_not_mixed_into_the_table(capsys):
    arguments = [argument for argument in RECALL if not argument.startswith("model=")]
    assert train_loop.main([*arguments, "model=rum", "model.cell.zoneout=0.5"]) == 0
    assert "train loss" not in capsys.readouterr().out


@pytest.mark.parametrize("skipped", ["clipping", "a batch"])
def test_refuses_when_the_loops_train_differently(capsys, monkeypatch, tmp_path, skipped):
    train = train_loop.BareLoop.train

    def wrong(self: train_loop.BareLoop, batches: Any) -> None:
        if skipped == "clipping":
            self.clip = None
        train(self, batches[1:] if skipped == "a batch" else batches)

    monkeypatch.setattr(train_loop.BareLoop, "train", wrong)
    path = tmp_path / "train_loop.jsonl"
    assert train_loop.main([*RECALL, "trainer.gradient_clip_val=0.001", f"json={path}"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "No figures: recall gru: training and the bare loop end with different weights" in captured.err
    assert not path.exists()


def test_a_stopwatch_books_time_on_the_innermost_action(monkeypatch):
    clock = iter((1.0, 3.0, 6.0, 10.0, 15.0, 21.0))
    monkeypatch.setattr(train_loop.time, "perf_counter", lambda: next(clock))
    watch = train_loop.Stopwatch()
    watch.stop("begun before it was there")
    with watch.profile("[Callback]outer"):
        watch.around("logging", lambda: None)()
    watch.around("[Callback]other", lambda: None)()
    assert dict(watch.seconds) == {"[Callback]outer": 2 + 4, "logging": 3, "[Callback]other": 6}
    assert watch.total("[Callback]") == 12


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("foo=1", ["foo"]),
        ("rounds=0", ["rounds=0", "≥ 1"]),
        ("steps=1.5", ["steps=1.5", "integer"]),
        ("steps=7", ["steps=7", "multiple", "50"]),
        ("steps", ["steps", "key=value"]),
        ("case=foo", ["case=foo", *train_loop.CASES]),
        ("model=foo", ["model=foo", "lstm"]),
        ("model.cell.hidden_size=0", ["hidden_size=0", "integer ≥"]),
        ("model.cell.foo=1", ["model.cell.foo"]),
        ("task.delay=[", ["task.delay"]),
        ("scheduler=cosine", ["scheduler=cosine", "set by the benchmark"]),
        ("trainer.max_steps=5", ["trainer.max_steps=5", "set by the benchmark"]),
        ("json=no/such/folder/file", ["json=no/such/folder/file", "folder"]),
    ],
)
def test_a_bad_argument_is_one_line(capsys, argument, words):
    assert train_loop.main([argument]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert all(word in captured.err for word in words), captured.err


def test_help_names_every_key(capsys):
    assert train_loop.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{key}=" in printed for key in train_loop.Settings._fields if key != "overrides")
    assert all(f"  {case} " in printed for case in train_loop.CASES)
