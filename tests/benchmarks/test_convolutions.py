"""The benchmark of convolutions: checked against float64, reported, and refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import convolutions
from gyral.ops.convolution import naive

TINY = ["size=2x20x8,2x40x8", "kernel=3", "heads=2", "repeat=1", "threads=1"]


@pytest.fixture(autouse=True)
def _threads() -> Any:
    yield
    torch.set_num_threads(1)


def test_rows_and_memory_linear_in_the_steps(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    path = tmp_path / "rows.jsonl"
    assert convolutions.main([*TINY, f"json={path}"]) == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["operator"] for row in rows] == ["torch conv1d", "light", "dynamic"] * 2
    assert all(row["error"] < 1e-5 for row in rows if row["error"] is not None)
    assert rows[5]["kept_mib"] == 2 * rows[2]["kept_mib"]
    assert "forward + backward" in " ".join(capsys.readouterr().out.split())


def test_unsupported_uses_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert convolutions.main(["size=2x2"]) == 2
    assert "size=2x2: must be <batch>x<steps>x<channels>" in capsys.readouterr().err
    assert convolutions.main(["seconds=2"]) == 2
    assert "seconds=2: unknown key" in capsys.readouterr().err
    exact = naive.convolution
    monkeypatch.setattr(naive, "convolution", lambda *arguments: 1.001 * exact(*arguments))
    assert convolutions.main(TINY) == 1
    assert "light: relative error" in capsys.readouterr().err
