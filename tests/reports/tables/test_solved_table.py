"""The layout "solved": counts with exact intervals, medians, longest lengths and censored steps."""

from dataclasses import replace
from pathlib import Path

import pytest

from gyral.reports import catalogue
from gyral.reports.frame import Frame
from gyral.reports.measures import with_measures
from gyral.reports.plots.solved import shade_of
from gyral.reports.rows import counted_runs, rows_of
from gyral.reports.statistics import exact_interval
from gyral.reports.tables.layouts import tables_of
from gyral.runs.run_record import Curve, Log, RunRecord
from gyral.tasks.group import GroupTask
from tests.helpers.running import invoke


@pytest.mark.parametrize(
    ("solved", "runs", "expected"),
    [  # the values of R's binom.test
        (5, 5, (0.4781762, 1.0)),
        (0, 5, (0.0, 0.5218238)),
        (4, 5, (0.2835821, 0.9949492)),
        (3, 10, (0.0667395, 0.6524529)),
    ],
)
def test_intervals_equal_those_of_clopper_and_pearson(solved: int, runs: int, expected: tuple[float, float]) -> None:
    assert exact_interval(solved, runs) == pytest.approx(expected, abs=1e-7)


def run(column: str, seed: int, accuracies: list[float], steps: list[int]) -> RunRecord:
    """Return a run with accuracies of the tests 1×, 2×, 4× and 8×, and of the validations after some steps."""
    names = ("last_accuracy", "last_accuracy_2x", "last_accuracy_4x", "last_accuracy_8x")
    results = {f"test/{name}": value for name, value in zip(names, accuracies, strict=True)}
    curve = Curve(steps, [0.5] * (len(steps) - 1) + [accuracies[0]], steps[0], len(steps))
    return RunRecord(
        place=f"{column}-{seed}",
        config={"seed": seed, "task": {"length": 24}},
        overrides={"experiment": "experiment=atlas_small/gru", "column": f"column=atlas_small/{column}"},
        results=results | {"parameters": 1000, "test/sequence_accuracy_8x": 0.0},
        steps=steps[-1],
        read_log=lambda: Log({"val/last_accuracy": curve}, None),
        measures=GroupTask.measures,
    )


def diverged(column: str, seed: int) -> RunRecord:
    reason = "NonFiniteError: the gradient of weight_hh is not finite"
    return replace(run(column, seed, [0.0, 0.0, 0.0, 0.0], [50, 100]), results=None, reason=reason)


def test_what_is_solved_how_far_and_how_fast() -> None:
    records = [
        run("S3", 1, [1.0, 1.0, 0.95, 0.5], [50, 100]),
        run("S3", 2, [0.99, 0.8, 0.95, 0.95], [50, 200]),
        run("S3", 3, [0.34, 0.3, 0.3, 0.3], [50, 500]),
        run("S3", 0, [0.0, 0.0, 0.0, 0.0], [50, 500]),  # it has chosen the learning rate
        run("Z5", 1, [1.0, 1.0, 1.0, 1.0], [50, 100]),
        *(run("S5_2", seed, [0.0167, 0.0, 0.0, 0.0], [50, 2500]) for seed in (1, 2)),
        diverged("S5_2", 3),
        diverged("A5_2", 1),
    ]
    sweep = with_measures(catalogue.load("atlas_small"), records)
    solved, *others = tables_of(Frame(sweep.title, rows_of(sweep, records), sweep))
    entries = [
        {column.head: "; ".join(column.entries[0].lines) for column in table.columns} for table in (solved, *others)
    ]
    assert entries[0]["S3"] == "2/3: 99.0 (34.0 to 100.0); 3 of 5 seeds"
    assert entries[0]["Z5"].startswith("1/1: 100.0")
    assert entries[0]["S5_2"] == "0/3: 1.7; sign alone; 1 diverged; 3 of 5 seeds"
    assert entries[0]["A5_2"] == "0/1: –; 1 diverged; 1 of 5 seeds"
    assert entries[0]["parity"] == "–"
    assert "3/3 29 to 100 %" in solved.caption
    assert entries[1]["S3"] == "50.0 (30.0 to 95.0)"
    assert entries[3]["S3"] == "24 (– to 96)"  # the second run fails at 48 letters
    assert entries[3]["Z5"] == "≥ 192"
    assert entries[4]["S3"] == "200 (100 to > 500)"
    assert len(entries) == 5  # the time of runs depends on what ran beside them
    assert entries[0]["parameters"] == "1,000"


def test_a_shade_is_the_share_of_what_the_floor_leaves() -> None:
    assert [shade_of(75.0, 50.0), shade_of(40.0, 50.0), shade_of(100.0, 100.0)] == [0.5, 0.0, 0.0]


def test_plots_of_solved_tables_need_one(tmp_path: Path) -> None:
    given = ("sweep=results/records/recall/gru", f"save={tmp_path}/a.png")
    for plot in ("heatmap", "lengths"):
        error = f"plot={plot}: needs runs of a table with the layout solved, such as sweep=atlas_small"
        assert invoke(*given, f"plot={plot}", entry="report").error == error


def test_runs_beside(tmp_path: Path) -> None:
    given = ("sweep=results/records/recall/dtriv", "missing=false")
    beside = invoke(*given, "beside=results/records/recall/gru", entry="report")
    assert {"GRU", "dtriv"} <= {line.split()[0] for line in beside.out.splitlines() if line.strip()}
    wrong = invoke(*given, f"beside={tmp_path}/none", entry="report")
    assert wrong.error.endswith("must be a directory that contains runs or records")


@pytest.mark.parametrize(
    ("trials", "counted"),
    [
        ({0.01: 1.5, 0.03: 1.6}, 0.01),
        ({0.03: 1.6}, 0.03),  # the trial of the other value has not ended
        ({}, 0.01),
        ({0.003: 1.0}, 0.01),  # of a value that no run has
    ],
)
def test_runs_of_one_learning_rate_count(trials: dict[float, float], counted: float) -> None:
    def of(lr: float, seed: int, score: float) -> RunRecord:
        config = {"seed": seed, "optimizer": {"lr": lr}, "task": {"mode": "min"}}
        return RunRecord(f"{lr}-{seed}", config, {}, {"monitor": score})

    runs = [of(lr, seed, lr) for lr in (0.03, 0.01) for seed in (1, 2)]
    found = counted_runs(catalogue.load("language_small"), [*runs, *(of(lr, 0, s) for lr, s in trials.items())])
    assert [record.config["optimizer"]["lr"] for record in found] == [counted] * 2
