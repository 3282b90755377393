"""Names and units of the metrics that plots show. Imports no torch."""

from collections.abc import Sequence

from gyral.core.measures import Measure, loss_unit
from gyral.runs.run_record import RunRecord, measures_of

SPLITS = {"train": "training", "val": "validation", "test": "test"}


def measure_of(metric: str, records: Sequence[RunRecord]) -> Measure:
    """Return the measure of a metric, such as val/accuracy; a metric without one is printed as it is logged."""
    name = metric.rpartition("/")[2]
    known = measures_of(records).get(name)
    if known:
        return known
    if name in ("loss", "baseline"):
        logged = {metric for record in records for metric in (*(record.results or {}), *record.curves)}
        unit = loss_unit(logged)
        return Measure("loss", unit if " " in unit else name, "" if " " in unit else unit, higher_is_better=False)
    return Measure(name, name.replace("_", " "))


def metric_label(metric: str, records: Sequence[RunRecord]) -> str:
    """Return the label of an axis: "validation accuracy (%)", "training loss (nats)"."""
    measure = measure_of(metric, records)
    split = SPLITS.get(metric.partition("/")[0], "")
    return " ".join(filter(None, (split, measure.label, f"({measure.unit})" if measure.unit else "")))


def bounds_of(measure: Measure | None) -> tuple[float, float] | None:
    """Return the smallest and the largest possible value of a measure as it is printed, None if it has none."""
    return (0.0, 100.0) if measure and measure.unit == "%" else None
