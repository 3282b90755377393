"""The benchmark of AWD-LSTM's recipe: the bare loops learn the same, and a difference is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import awd_lstm
from gyral.tasks.text import TextTask
from tests.helpers.running import build_or_skip, compose_config

TINY = [
    "steps=1",
    "rounds=1",
    "threads=1",
    "model.layer_sizes=[16,12]",
    "model.embedding_size=12",
    "task.batch_size=2",
    "task.window=12",
]


@pytest.fixture(autouse=True)
def _global_state(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put back what a run seeds and sets for its process; skip without the corpus."""
    build_or_skip(compose_config("task=ptb_word", "model=gru"))
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")
    yield
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(False)


@pytest.mark.slow
def test_the_bare_loops_learn_the_same_and_are_reported(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert awd_lstm.main([*TINY, f"json={path}"]) == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["case"], row["model"], row["hidden"]) for row in rows] == [
        ("awd_lstm", "lstm", "16-12"),
        ("on_lstm", "on_lstm", "16-12"),
    ]
    assert all(row["bare_ms"] > 0 for row in rows)
    assert "| awd_lstm | lstm" in capsys.readouterr().out


@pytest.mark.slow
def test_a_difference_is_refused(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextTask, "_regularize", lambda self, outputs, dropped: 3 * dropped.square().mean())
    assert awd_lstm.main([*TINY, "row=awd_lstm"]) == 1
    assert "No figures" in capsys.readouterr().err


def test_wrong_words_are_refused(capsys: Any) -> None:
    assert awd_lstm.main(["row=lstm"]) == 2
    assert "row=lstm: must be one of awd_lstm, on_lstm" in capsys.readouterr().err
