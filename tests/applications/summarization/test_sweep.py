"""The rows with coverage of a sweep start from its rows without, whatever options the sweep adds."""

from pathlib import Path

import pytest

from tests.applications.summarization.small import SUMMARIES
from tests.helpers.running import compose_config, invoke

TABLE = "rum_paper_table4"
ROWS = ("dec_rum", "dec_rum_coverage")


def test_coverage_finds_its_starting_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = [option for option in SUMMARIES if not option.startswith(("model=", "optimizer"))]
    rows = ",".join(f"rum_paper/table4/{row}" for row in ROWS)
    outcome = invoke(f"sweep={TABLE}", f"experiment={rows}", *small, "threads=1")
    assert outcome.status == 0, outcome.err
    started, continued = (next(Path("outputs/sweep", TABLE, row).iterdir()) for row in ROWS)
    assert continued.name == started.name != "seed=1"
    assert f"Training starts from the weights of {started}" in (continued / "train.log").read_text()


def test_a_row_with_coverage_alone_starts_from_the_run_of_the_sweep() -> None:
    config = compose_config("experiment=rum_paper/table4/dec_rum_coverage", "seed=3")
    assert config.weights == "outputs/sweep/rum_paper_table4/dec_rum/seed=3"
