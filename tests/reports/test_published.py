"""The published numbers of the row that one run belongs to."""

from pathlib import Path

import pytest

from gyral.reports.published import published_results
from tests.helpers.running import SMALL, invoke
from tests.helpers.written import FIG4, TABLE1, write_run


def test_a_run_has_the_published_numbers_of_its_row_and_column(tmp_path: Path) -> None:
    run = write_run(tmp_path, f"{TABLE1}/gru", length=50, accuracy=0.5)
    assert published_results(run)["test/accuracy"] == "17.6 %"
    assert published_results(write_run(tmp_path, f"{TABLE1}/gru", length=30, accuracy=0.5))["test/accuracy"] == "21.5 %"
    assert published_results(write_run(tmp_path, f"{FIG4}/gru_100", accuracy=0.5)) == {
        "finding": "stays at the baseline"
    }
    assert published_results(write_run(tmp_path, f"{TABLE1}/gru", length=30, seed=2)) == {}  # it is not DONE
    assert published_results(write_run(tmp_path, "none", "model=gru", accuracy=0.5)) == {}


@pytest.mark.parametrize("experiment", [f"{FIG4}/gru_100"])
def test_a_single_experiment_prints_them_at_its_end(experiment: str, tmp_path: Path) -> None:
    options = (*SMALL, "trainer.max_steps=2", "task.delay=3", "task.recalled=2")
    outcome = invoke(*options, f"experiment={experiment}", f"hydra.run.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    assert "finding of the paper" in outcome.out
    assert "stays at the baseline" in outcome.out
