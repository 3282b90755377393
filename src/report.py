"""What a run measured, for people: tables in the terminal, loss curves as a picture. Imports no torch."""

import csv
import math
from pathlib import Path

from rich.console import Console
from rich.table import Table

from src import runs

LOSS_CURVE = "loss.png"


def print_results(directory: Path, results: dict[str, float]) -> None:
    """Print the short table that ends a run."""
    loss, baseline = results["test/loss"], results["test/baseline"]
    here = Path.cwd()
    factor = baseline / loss if loss > 0 else math.inf
    beaten = f"yes, by a factor of {factor:.4g}" if factor > 1 else "no"
    rows = {
        "test loss (nats)": f"{loss:.4g}",
        "test accuracy": f"{results['test/accuracy']:.2%}",
        "sequences all right": f"{results['test/sequence_accuracy']:.2%}",
        "memoryless baseline (nats)": f"{baseline:.4g}",
        "baseline beaten": beaten,
        "parameters": f"{results['parameters']:,.0f}",
        "seconds a step": f"{seconds:.3g}" if (seconds := results["seconds_a_step"]) else "not measured",
        "run directory": str(directory.relative_to(here) if directory.is_relative_to(here) else directory),
    }
    _print_table(rows)


def print_metrics(title: str, metrics: dict[str, float]) -> None:
    """Print metrics with all their digits, so that two evaluations can be compared."""
    _print_table({"checkpoint": title, **{name: f"{value:.8g}" for name, value in metrics.items()}})


def _print_table(rows: dict[str, str]) -> None:
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def read_metrics(directory: Path, name: str) -> tuple[list[int], list[float]]:
    """Return the steps (numbers of optimizer steps taken) and values at which a metric was logged in metrics.csv."""
    steps, values = [], []
    with (directory / runs.METRICS).open(newline="") as file:
        for row in csv.DictReader(file):
            if row.get(name):
                steps.append(int(row["step"]) + 1)
                values.append(float(row[name]))
    return steps, values


def plot_losses(directory: Path) -> Path:
    """Draw training and validation loss against the memoryless baseline; return the picture's path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    positive = False
    for name, label, style in (
        ("train/loss", "training", {"linewidth": 1}),
        ("val/loss", "validation", {"linewidth": 1.8, "marker": "o", "markersize": 4}),
    ):
        steps, values = read_metrics(directory, name)
        positive |= any(value > 0 for value in values)
        axes.plot(steps, values, label=label, **style)
    _, baseline = read_metrics(directory, "train/baseline")
    if baseline:
        axes.axhline(baseline[0], color="black", linestyle="--", linewidth=1.2, label="memoryless baseline")
    axes.set(
        xlabel="optimizer steps", ylabel="loss (nats)", yscale="log" if positive else "linear", title=directory.name
    )
    axes.grid(alpha=0.3)
    axes.legend()
    FigureCanvasAgg(figure).print_png(directory / LOSS_CURVE)
    return directory / LOSS_CURVE
