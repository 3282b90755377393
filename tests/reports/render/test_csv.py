"""A report as CSV."""

import csv
from pathlib import Path

import pytest

from gyral.reports.render import csv as csv_format
from gyral.reports.tables.sections import Section


def test_csv_leads_from_every_number_to_its_runs(sections: list[Section], runs: Path) -> None:
    lines = list(csv.DictReader(csv_format.render(sections).splitlines()))
    first = [line for line in lines if (line["row"], line["column"]) == ("GRU", "length=30")]
    assert [line["seed"] for line in first] == ["1", "2"]
    assert {line["setting"] for line in first} == {"experiment=rum_paper/table1/gru"}
    for line, accuracy in zip(first, (20.0, 23.0), strict=True):
        assert float(line["value"]) == pytest.approx(accuracy)
        assert float(line["mean"]) == pytest.approx(21.5)
        assert float(line["deviation"]) == pytest.approx(3 / 2**0.5)
        assert (line["runs"], line["paper"], line["state"], line["steps"]) == ("2", "21.5", "DONE", "100000")
        assert (Path(line["place"]) / "DONE").is_file()
        assert (line["commit"], line["wandb_id"]) == ("ac466c4a7639e50dd91bd177ceb493ec96c6c0c5", "0f22b828c43a")
        assert line["command"] == "python -m src.train -m seed=1,2 '~callbacks.progress_bar'"
    failed, done = (line for line in lines if (line["row"], line["column"]) == ("LSTM", "length=30"))
    assert (failed["value"], failed["state"], failed["reason"]) == ("", "FAILED", "NonFiniteError: loss_nan | 100 %")
    assert (done["uncommitted_changes"], failed["uncommitted_changes"]) == ("true", "false")
    assert any(line["row"] == "WeiNet" and line["state"] == "missing" for line in lines)
    assert all(line["place"] for line in lines if line["mean"])
