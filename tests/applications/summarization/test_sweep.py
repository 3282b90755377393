"""The rows with coverage of a sweep start from its rows without, whatever options the sweep adds."""

from pathlib import Path

import pytest

from tests.applications.summarization.small import SUMMARIES
from tests.helpers.running import compose_config, invoke

TABLE = "rum_paper_table4"
ROWS = ("dec_rum", "dec_rum_coverage")
# the corpus of the tests in place of that of the table, and no model of its own
SHORT = tuple(word for word in SUMMARIES if not word.startswith(("model=", "optimizer=", "trainer.")))


def test_coverage_finds_its_starting_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ",".join(f"rum_paper/table4/{row}" for row in ROWS)
    steps = ("trainer=cpu", "trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.log_every_n_steps=1")
    added = ("task.coverage_weight=0.5", "trainer.gradient_clip_val=1.0")
    outcome = invoke(f"sweep={TABLE}", f"experiment={rows}", *SHORT, *steps, *added)
    assert outcome.status == 0, outcome.err
    started, continued = sorted(path.parent for path in Path("outputs/sweep", TABLE).rglob("DONE"))
    assert (started.parent.name, continued.parent.name) == ROWS
    assert continued.name == started.name != "seed=1"
    told = f"Training starts from the weights of {started}/checkpoints/best.ckpt"
    assert told in outcome.err
    assert told in (continued / "train.log").read_text()


def test_a_row_with_coverage_alone_starts_from_the_run_of_the_sweep() -> None:
    config = compose_config("experiment=rum_paper/table4/dec_rum_coverage", "seed=3")
    assert config.weights == "outputs/sweep/rum_paper_table4/dec_rum/seed=3"
