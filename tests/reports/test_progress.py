"""The progress of a sweep."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers.running import invoke
from tests.helpers.written import RESULTS, TABLE1, write_run


def test_a_watched_report_ends_when_all_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [write_run(tmp_path, "none", "model=gru", seed=seed) for seed in (1, 2)]
    for run in written:
        (run / "overrides.yaml").write_text("- model=gru\n")

    def finish_one(seconds: float) -> None:
        run = written.pop()
        (run / ("DONE" if written else "FAILED")).write_text(json.dumps({**RESULTS, "steps": 40}))

    monkeypatch.setattr("gyral.reports.progress.time.sleep", finish_one)
    out = invoke(f"sweep={tmp_path}", "watch=true", entry="report").out
    lines = out.splitlines()
    assert lines[:3] == ["0 done, 2 unfinished", "1 done, 1 unfinished", "1 done, 1 FAILED"]
    assert "Runs on" in lines[3]


def test_a_watched_report_is_ended_by_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gyral.reports.progress.time.sleep", interrupt)
    outcome = invoke(f"sweep={tmp_path}", "watch=true", entry="report")
    assert outcome.status == 0
    assert re.match(r"1 done, [1-9]\d+ missing\n", outcome.out)
    assert "Table 1" in outcome.out
