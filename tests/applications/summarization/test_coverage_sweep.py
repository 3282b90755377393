"""Rows with coverage start from the rows without it, whatever options a sweep adds."""

from pathlib import Path

import pytest

from tests.applications.summarization.small import SUMMARIES
from tests.helpers.running import invoke

TABLE = "rum_paper_table4"
# the corpus of the tests in place of that of the table, and no model of its own
SHORT = tuple(word for word in SUMMARIES if not word.startswith(("model=", "optimizer=", "trainer.")))


def test_a_sweep_with_further_options_finds_the_starting_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ",".join(f"rum_paper/table4/{name}" for name in ("dec_rum", "dec_rum_coverage"))
    steps = ("trainer=cpu", "trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.log_every_n_steps=1")
    added = ("task.coverage_weight=0.5", "trainer.gradient_clip_val=1.0")
    outcome = invoke(f"sweep={TABLE}", f"experiment={rows}", *SHORT, *steps, *added)
    assert outcome.status == 0, outcome.err
    runs = sorted(path.parent for path in Path("outputs/sweep", TABLE).rglob("DONE"))
    assert [run.parent.name for run in runs] == ["dec_rum", "dec_rum_coverage"]
    assert f"Training starts from the weights of {runs[0]}/checkpoints/best.ckpt" in outcome.err
