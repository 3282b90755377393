"""Accuracies of all cells on associative recall, from the records of the table `recall`."""

from functools import cache
from pathlib import Path

import measured
from yaml import safe_load

from gyral.reports.frame import pandas_frame

ROOT = Path(__file__).parents[1]


@cache
def accuracies() -> dict[str, str]:
    """Return mean ± standard deviation over the seeds, in %, by model, named as in the records of speeds.

    The learning rate is the one of three with the best validation accuracy.
    """
    records = [record for record in measured.all_records(ROOT) if (record.experiment or "").startswith("recall/")]
    runs = pandas_frame(records)
    done = runs[runs["state"] == "DONE"]
    every = done.pivot_table(index=["row", "column"], columns="metric", values="value", aggfunc=["mean", "std"])
    found = {}
    for row in safe_load((ROOT / "conf" / "table" / "recall.yaml").read_text(encoding="utf-8"))["rows"].values():
        if row["name"] not in every.index:
            continue
        scores = every.loc[row["name"]]
        best = scores.loc[scores["mean", "monitor"].idxmax()]
        model = row["model"] + (":lambd=1" if row.get("model.cell.lambd") else "")
        found[model] = f"{best['mean', 'test/accuracy']:.1f} ± {best['std', 'test/accuracy']:.1f}"
    return found


def accuracy(model: str) -> str:
    """Return the accuracy of a model, or a dash if it was not measured."""
    return accuracies().get(model, "–")
