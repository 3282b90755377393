"""Reports by groups of test examples: the table and the plot, beside published values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.running import invoke
from tests.helpers.written import drawn, write_run

LOGIC = "on_lstm_paper/logical_inference"


def write_accuracies(directory: Path, row: str, seed: int, accuracies: dict[int, float] | None) -> None:
    """Write a run of logical inference; it is unfinished without accuracies."""
    run = write_run(directory, f"{LOGIC}/{row}", seed=seed, accuracy=None if accuracies is None else 0.9)
    if accuracies is not None:
        results: dict[str, Any] = json.loads((run / "DONE").read_text())
        results |= {f"test/accuracy_{number}_operators": value for number, value in accuracies.items()}
        (run / "DONE").write_text(json.dumps(results))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_accuracies(tmp_path, "lstm", 1, {1: 1.0, 6: 0.9, 7: 0.85})
    write_accuracies(tmp_path, "lstm", 2, {1: 1.0, 6: 0.8, 7: 0.75})
    write_accuracies(tmp_path, "goru", 1, {1: 0.99, 6: 0.7, 7: 0.6})
    write_accuracies(tmp_path, "goru", 2, None)
    return tmp_path


def test_a_table_has_a_line_for_each_group_beside_the_published_values(runs: Path) -> None:
    outcome = invoke(f"sweep={runs}", entry="report")
    assert outcome.status == 0, outcome.err
    lines = [line.split() for line in outcome.out.splitlines()]
    assert ["operators", "LSTM", "GORU"] in lines
    index = lines.index(["6", "85.0", "70.0"])
    assert lines[index + 1][:3] == ["±", "7.1", "unfinished"]
    index = lines.index(["7", "80.0", "60.0"])
    assert ["paper", "88.0?"] in lines[index:]
    index = lines.index(["12", "–", "unfinished", "at", "step", "40"])
    assert lines[index + 1] == ["paper", "69.0?"]
    assert ["Ordered", "Memory", "98.0?", "97.0?", "96.0?", "94.0?", "93.0?", "92.0?"] in lines


def test_a_plot_has_lines_over_groups_and_published_lines(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = drawn(monkeypatch)
    for seeds, count in (("deviation", 2), ("all", 3)):
        given = (f"sweep={runs}", f"save={tmp_path}/groups.pdf", "plot=groups", f"seeds={seeds}")
        outcome = invoke(*given, entry="report")
        assert outcome.status == 0, outcome.err
        [axes] = figures[-1].axes
        lines = [line for line in axes.lines if line.get_gid() == "row"]
        assert len(lines) == count
    [lstm, goru] = [line for line in figures[0].axes[0].lines if line.get_gid() == "row"]
    np.testing.assert_allclose(lstm.get_xydata(), [[1, 100], [6, 85], [7, 80]])
    np.testing.assert_allclose(goru.get_ydata(), [99, 70, 60])
    published = [line for line in figures[0].axes[0].lines if line.get_gid() == "published"]
    assert [*published[0].get_ydata()] == [88, 84, 80, 78, 71, 69]
    assert len(published) == 2 + 4  # also of a row without runs
    assert figures[0].axes[0].get_xlabel() == "number of operators"
    assert "trained on ≤ 6 operators" in [text.get_text() for text in figures[0].axes[0].texts]


def test_a_plot_of_groups_needs_results_by_groups(tmp_path: Path) -> None:
    write_run(tmp_path, f"{LOGIC}/lstm", accuracy=0.9)
    outcome = invoke(f"sweep={tmp_path}", f"save={tmp_path}/groups.pdf", "plot=groups", entry="report")
    assert outcome.error == ("plot=groups: needs results by groups, such as test/accuracy_7_operators; no run has any")
