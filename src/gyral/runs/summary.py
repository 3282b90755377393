"""Tables of final metrics in the terminal. Imports no torch."""

import math
from pathlib import Path

from rich.console import Console
from rich.table import Table

# Metrics of tasks besides the loss: name, label, format.
METRICS = (
    ("bits", "test bits per symbol", ".4f"),
    ("perplexity", "test perplexity", ".2f"),
    ("accuracy", "test accuracy", ".2%"),
    ("rouge1", "ROUGE-1", ".2f"),
    ("rouge2", "ROUGE-2", ".2f"),
    ("rougeL", "ROUGE-L", ".2f"),
    ("majority", "most frequent answer", ".2%"),
    ("sequence_accuracy", "sequences all right", ".2%"),
)


def print_results(directory: Path, results: dict[str, float]) -> None:
    """Print the table at the end of a run.

    Args:
        directory: the run directory.
        results: the final metrics, as in DONE.
    """
    loss, baseline = results["test/loss"], results["test/baseline"]
    factor = baseline / loss if loss > 0 else math.inf
    metrics = {
        label: format(results[f"test/{name}"], form) for name, label, form in METRICS if f"test/{name}" in results
    }
    here = Path.cwd()
    rows = {
        "test loss (nats)": f"{loss:.4g}",
        **metrics,
        "memoryless baseline (nats)": f"{baseline:.4g}",
        "baseline beaten": f"yes, by a factor of {factor:.4g}" if factor > 1 else "no",
        **({"data": "GENERATED stories"} if results.get("test/generated") else {}),
        "parameters": f"{results['parameters']:,.0f}",
        "seconds a step": f"{seconds:.3g}" if (seconds := results["seconds_a_step"]) else "not measured",
        "run directory": str(directory.relative_to(here) if directory.is_relative_to(here) else directory),
    }
    _print_table(rows)


def print_metrics(title: str, metrics: dict[str, float]) -> None:
    """Print metrics with eight significant digits, so that two evaluations can be compared."""
    _print_table({"checkpoint": title, **{name: f"{value:.8g}" for name, value in metrics.items()}})


def _print_table(rows: dict[str, str]) -> None:
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
