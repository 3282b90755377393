"""The benchmark of training steps: what it reports and writes, and that it refuses to when torch.nn.GRU differs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import steps

TINY = ["sweep=atlas_small", "repeat=2", "task.batch_size=4", "task.length=5", "model.cell.hidden_size=8"]


@pytest.fixture(autouse=True)
def _global_state(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put back what a run seeds and sets for its process."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("block", ["null", "swiglu"])
def test_rows_are_measured_beside_torch(capsys: pytest.CaptureFixture[str], tmp_path: Path, block: str) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text("an earlier record\n")
    assert steps.main([*TINY, "row=gru,rum_lambda1", "column=S3", f"json={path}", f"model.block={block}"]) == 0
    base, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert (base["row"], base["cell"], base["step_ratio"]) == ("torch.nn.GRU", "torch.nn.GRU", 1.0)
    assert [(row["row"], row["cell"], row["column"]) for row in rows] == [
        ("gru", "GRU", "S3"),
        ("rum_lambda1", "RUM", "S3"),
    ]
    assert base["parameters"] == rows[0]["parameters"]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| torch", "| gru", "| rum"))]
    for row, line in zip([base, *rows], lines, strict=True):
        assert (row["batch"], row["time_steps"], row["hidden"], row["threads"], row["repeat"]) == (4, 6, 8, 1, 2)
        assert min(row["step_ms"], row["forward_ms"]) > 0
        assert row["step_ratio"] == pytest.approx(row["step_ms"] / base["step_ms"])
        assert f"{row['step_ratio']:.2f} |" in line
        assert {"torch", "cpu", "cores", "commit", "date", "overrides"} <= row.keys()


def test_refuses_when_torch_computes_something_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: self)
    assert steps.main([*TINY, "row=lstm", f"json={tmp_path}/steps.jsonl"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "No figures: torch.nn.GRU has other outputs than the row gru" in captured.err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["row=gru"], "sweep: must be given"),
        (["sweep=atlas"], "sweep=atlas"),
        (["sweep=atlas_small", "row=rum"], "row=rum: must be one of lstm, gru"),
        (["sweep=atlas_small", "column=Z7"], "column=Z7: must be one of parity"),
        (["sweep=language_small", "column=Z7"], "has no columns"),
        (["sweep=atlas_small", "repeat=0"], "repeat=0"),
        (["sweep=atlas_small", "json="], "json"),
        (["sweep=atlas_small", "task.foo=1"], "task.foo"),
        (["sweep=atlas_small", "seed"], "key=value"),
        (["sweep=mage_paper_babi"], "has no row of GRU"),
    ],
)
def test_wrong_arguments_are_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert steps.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert steps.main(["--help"]) == 0
    assert "sweep=language_small" in capsys.readouterr().out
