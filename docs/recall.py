"""The results of tables whose columns are learning rates, at the rate of each row that is the best in validation."""

from functools import cache
from pathlib import Path

import measured
from yaml import safe_load

from gyral.reports.catalogue import load
from gyral.reports.rows import rows_of
from gyral.reports.statistics import mean_text
from gyral.runs.run_record import RunRecord

ROOT = Path(__file__).parents[1]


@cache
def best_runs(table: str) -> dict[str, list[RunRecord]]:
    """Return the finished runs of each row of a table, at the learning rate with the best mean in validation."""
    sweep, found = load(table), {}
    for row in rows_of(sweep, measured.all_records(ROOT)):
        by_rate: dict[str, list[RunRecord]] = {}
        for record in row.records:
            if record.results:
                by_rate.setdefault(sweep.column_of(record), []).append(record)
        if by_rate and not row.setting:
            found[row.experiment] = max(by_rate.values(), key=measured.validation)
    return found


@cache
def accuracies() -> dict[str, str]:
    """Return mean ± standard deviation over the seeds, in %, by model, named as in the records of speeds."""
    rows = safe_load((ROOT / "conf" / "table" / "recall.yaml").read_text(encoding="utf-8"))["rows"]
    found = {}
    for name, row in rows.items():
        if runs := best_runs("recall").get(f"recall/{name}"):
            model = row["model"] + (":lambd=1" if row.get("model.cell.lambd") else "")
            found[model] = mean_text([100 * run.metrics["test/accuracy"] for run in runs], 1)
    return found


def accuracy(model: str) -> str:
    """Return the accuracy of a model, or a dash if it was not measured."""
    return accuracies().get(model, "–")
