"""The measures of runs as plain data."""

import json
from pathlib import Path
from typing import Any

import pytest

from gyral.core.errors import UserError
from gyral.core.measures import ACCURACY, BITS, MSE, SEQUENCE_ACCURACY, Measure, main_measure
from gyral.runs import records
from gyral.runs.measures import FILE, read_measures, to_plain, write_measures
from gyral.runs.record_files import SUFFIX, read_record, write_record
from gyral.runs.run_record import RunRecord, measures_of
from tests.helpers.written import MEASURES, REMARKS, TABLE1, report_of, write_run

HITS = Measure("hits", "hits among 10", "%", 100, 1)


def test_a_run_directory_has_the_measures_of_its_task(tmp_path: Path) -> None:
    write_measures(tmp_path, MEASURES, REMARKS)
    assert read_measures(tmp_path) == (MEASURES, REMARKS)


def test_only_values_that_differ_from_the_default_are_written() -> None:
    plain = to_plain([Measure("rouge1", "ROUGE-1")], [])
    assert plain == {"measures": [{"name": "rouge1", "label": "ROUGE-1"}], "remarks": []}


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"measures": []},
        {"measures": {}, "remarks": []},
        {"measures": ["accuracy"], "remarks": []},
        {"measures": [{"name": "accuracy"}], "remarks": []},
        {"measures": [{"name": "accuracy", "label": "accuracy", "_target_": "os.system"}], "remarks": []},
        {"measures": [{"name": 1, "label": "accuracy"}], "remarks": []},
        {"measures": [{"name": "accuracy", "label": "accuracy", "digits": 10**6}], "remarks": []},
        {"measures": [{"name": "accuracy", "label": "accuracy", "digits": True}], "remarks": []},
        {"measures": [{"name": "accuracy", "label": "accuracy", "scale": float("nan")}], "remarks": []},
        {"measures": [{"name": "accuracy", "label": "accuracy", "higher_is_better": "no"}], "remarks": []},
        {"measures": [], "remarks": [{"name": "substitute", "mark": "†"}]},
    ],
)
def test_a_damaged_file_is_named_in_one_line_and_hides_no_other_run(content: Any, tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    damaged = write_run(tmp_path, f"{TABLE1}/lstm", accuracy=0.25)
    (damaged / FILE).write_text(json.dumps(content))
    [found], [note] = records.read(tmp_path)
    assert found.experiment == f"{TABLE1}/gru"
    assert note.startswith(f"{damaged}: cannot be read: measures.json")
    assert "\n" not in note


def test_a_run_without_measures_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    (run / FILE).unlink()
    expected = "measures.json: has no measures, which every version since 0.2.0 writes"
    with pytest.raises(UserError, match=f"{expected}$"):
        records.read_run(run)


def test_a_record_without_measures_is_refused(tmp_path: Path) -> None:
    path = write_record(records.read_run(write_run(tmp_path / "runs", f"{TABLE1}/gru", accuracy=0.25)), tmp_path)
    content = json.loads(path.read_text())
    del content["measures"]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"{path.name}: has no measures"):
        read_record(path)


def test_a_record_has_the_measures_that_the_run_logged(tmp_path: Path) -> None:
    run = records.read_run(write_run(tmp_path / "runs", f"{TABLE1}/gru", accuracy=0.25))
    path = write_record(run, tmp_path)
    assert path.name.endswith(SUFFIX)
    assert read_record(path).measures == (ACCURACY, SEQUENCE_ACCURACY)


def test_reports_show_a_measure_that_only_the_run_knows(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25).rename(run)
    (run / "overrides.yaml").write_text("[model=gru, task=own, seed=1]\n")
    write_measures(run, (HITS, ACCURACY), ())
    results = json.loads((run / "DONE").read_text())
    (run / "DONE").write_text(json.dumps({**results, "test/hits": 0.625}))
    _, printed = report_of(tmp_path)
    assert "hits among 10" in printed
    assert "62.5" in printed


def test_the_main_measure_is_the_first_one_that_a_run_logs() -> None:
    assert main_measure((BITS, ACCURACY), ["test/accuracy", "test/bits"]) == BITS
    assert main_measure((BITS, ACCURACY), ["test/accuracy", "val/bits"]) == ACCURACY
    assert main_measure((SEQUENCE_ACCURACY,), ["test/sequence_accuracy"]).label == "loss in nats"
    assert main_measure((), ["test/mse"]).label == "loss in mean squared error"


def test_runs_of_several_tasks_have_the_measures_of_all() -> None:
    def record(*measures: Measure) -> RunRecord:
        return RunRecord("", {"seed": 1}, {}, None, measures=measures)

    found = measures_of([record(BITS, ACCURACY), record(ACCURACY, MSE), record()])
    assert list(found.values()) == [BITS, ACCURACY, MSE]
