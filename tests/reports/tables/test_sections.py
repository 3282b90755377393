"""Sections of runs that belong to no sweep."""

import json
from pathlib import Path

from omegaconf import OmegaConf

from tests.helpers.written import RESULTS, report_of, write_run


def test_runs_of_no_row_have_a_table_of_what_differs(tmp_path: Path) -> None:
    for rate, seed, loss in ((0.1, 1, 0.02), (0.1, 2, 0.04), (0.2, 1, None)):
        given = ("task.delay=3", "model=gru", f"optimizer.lr={rate}")
        written = write_run(tmp_path, "none", *given, seed=seed, accuracy=None if loss is None else 0.5)
        (written / "overrides.yaml").write_text(OmegaConf.to_yaml([*given, f"seed={seed}", "threads=1"]))
        if loss is not None:
            (written / "DONE").write_text(json.dumps({**RESULTS, "test/loss": loss, "steps": 40}))
    entries, printed = report_of(tmp_path)
    # the deviation of two values is their distance over √2
    assert entries["gru, learning rate = 0.1"] == ["87.5 ± 0.0", "0.0300 ± 0.0141", "0.7500", "13,710", "2"]
    assert entries["gru, learning rate = 0.2"] == ["seed 1 unfinished at step 40", "–", "–", "–", "0 of 1"]
    assert "all with task.delay=3" in " ".join(printed.split())
    resume = f"resume={tmp_path}/none-None-1-task.delay=3-model=gru-optimizer.lr=0.2"
    assert f"1 run not done. To run them: python -m src.train {resume}\n" in printed
