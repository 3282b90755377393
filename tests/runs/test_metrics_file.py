"""The metrics file of a run."""

from pathlib import Path

from gyral.runs.metrics_file import read_metrics
from tests.helpers.written import metrics


def test_metrics_are_read_with_the_number_of_steps_taken(tmp_path: Path) -> None:
    metrics(tmp_path, "step,train/loss,val/loss\n4,0.5,\n4,,0.25\n9,0.125,\n")
    assert read_metrics(tmp_path, "train/loss") == ([5, 10], [0.5, 0.125])
    assert read_metrics(tmp_path, "val/loss") == ([5], [0.25])
    assert read_metrics(tmp_path, "nothing") == ([], [])
