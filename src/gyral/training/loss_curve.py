"""The picture of a run's losses."""

from pathlib import Path

from gyral.runs.metrics_file import read_metrics

FILE = "loss.png"


def plot_losses(directory: Path) -> Path:
    """Plot training and validation loss and the memoryless baseline of a run; return the picture's path.

    Args:
        directory: the run directory, which has a metrics.csv.
    """
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
    FigureCanvasAgg(figure).print_png(directory / FILE)
    return directory / FILE
