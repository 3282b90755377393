"""JSON that we write."""

import json
import math
from pathlib import Path

import pytest

from gyral.core.errors import UserError
from gyral.core.files import to_json, to_json_lines
from gyral.runs.directory import DONE, Run, read_results
from tests.helpers.running import ROOT
from tests.helpers.written import RESULTS


def strict(text: str) -> object:
    def refuse(name: str) -> float:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def test_a_number_that_is_not_finite_is_null() -> None:
    content = {"a": [math.nan, 1.5, (math.inf,)], "b": {"c": -math.inf}, "d": True, "e": "NaN"}
    expected = {"a": [None, 1.5, [None]], "b": {"c": None}, "d": True, "e": "NaN"}
    assert strict(to_json(content)) == strict(to_json(content, 2)) == strict(to_json_lines(content)) == expected


def test_text_that_is_not_unicode_is_replaced() -> None:
    assert to_json(["\udcff", "λ"]) == '["?", "λ"]'


def test_the_results_of_a_run_are_strict_json_and_are_read_back(tmp_path: Path) -> None:
    results = {**RESULTS, "steps": 3, "test/loss": math.nan, "test/accuracy": math.inf, "monitor": math.nan}
    Run(tmp_path, None).finish(results)  # type: ignore[arg-type]
    strict((tmp_path / DONE).read_text())
    read = read_results(tmp_path)
    assert math.isnan(read["test/loss"])
    assert read["monitor"] is None
    assert math.isnan(read["test/accuracy"])
    assert read["parameters"] == RESULTS["parameters"]


def test_results_of_earlier_versions_may_have_nan(tmp_path: Path) -> None:
    (tmp_path / DONE).write_text(json.dumps({**RESULTS, "steps": 3, "test/loss": math.nan, "monitor": math.inf}))
    assert math.isnan(read_results(tmp_path)["test/loss"])
    assert read_results(tmp_path)["monitor"] is None
    (tmp_path / DONE).write_text(json.dumps({**RESULTS, "steps": math.nan}))
    with pytest.raises(UserError, match=r"DONE: metric steps is missing; without this file, the run is tested again"):
        read_results(tmp_path)


def test_files_are_written_by_the_function_that_writes_strict_json() -> None:
    folders = ("runs", "reports", "sweeps", "training", "generation")
    files = [path for folder in folders for path in (ROOT / "src" / "gyral" / folder).rglob("*.py")]
    found = {path.name for path in files if "json.dump" in path.read_text()}
    assert found <= {
        "saved_files.py",
        "checkpoints.py",
        "cma_states.py",
    }  # the last one writes into databases, as Optuna does
