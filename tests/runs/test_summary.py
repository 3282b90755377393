"""The table at the end of a run."""

import math
import re
from pathlib import Path

import pytest

from gyral.runs.summary import print_results
from tests.helpers.written import RESULTS


def test_results_table_says_whether_the_baseline_was_beaten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_results(tmp_path, RESULTS)
    printed = capsys.readouterr().out
    for words in ("0.02", "87.50%", "50.00%", "0.04", "yes, by a factor of 2", "13,710", "0.0123"):
        assert words in printed
    assert str(tmp_path) in re.sub(r"[│\s]", "", printed)
    print_results(tmp_path, {**RESULTS, "test/loss": 0.05})
    assert re.search(r"baseline beaten +│ no", capsys.readouterr().out)


@pytest.mark.parametrize("changes", [{"test/loss": 0.0}, {"test/loss": math.nan}, {"seconds_a_step": math.nan}])
def test_results_table_copes_with_corner_values(
    changes: dict[str, float], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    print_results(tmp_path, {**RESULTS, **changes})
    assert "test accuracy" in capsys.readouterr().out
