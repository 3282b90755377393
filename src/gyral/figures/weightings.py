"""How much the heads of an external memory use each slot over time, for one example."""

from matplotlib.figure import Figure

from gyral.figures.common import add_title, missing_part_error
from gyral.figures.memory import load_trace, read_only_spans
from gyral.plotting.layout import finish
from gyral.plotting.sizes import WIDTHS
from gyral.runs.directory import Run

HEIGHTS = 1.0, 1.9  # inches, the smallest and the largest height of a panel
TOTAL = 7.0  # inches of all panels, unless they would be lower than the smallest height


def weightings(run: Run) -> Figure:
    """Draw the weightings of a validation example as an image for each head: slots by time steps.

    Raises:
        OptionError: The cells of the run have no external memory, or one without weightings.
    """
    task, step, trace = load_trace(run)
    if not trace.weightings:
        raise missing_part_error(run, task, "weightings of its memory", "LANTMCell")
    height = min(max(TOTAL / len(trace.weightings), HEIGHTS[0]), HEIGHTS[1])
    figure = Figure(figsize=(WIDTHS["page"], 0.9 + height * len(trace.weightings)), layout="constrained")
    spans = read_only_spans(trace.writable)
    note = "; between dotted lines: no writing" if len(spans) else ""
    add_title(figure, run, f"weightings of a validation example at step {step:,}{note}")
    panels = list(figure.subplots(len(trace.weightings), sharex=True, squeeze=False).flat)
    largest = max(float(values.max()) for values in trace.weightings.values()) or 1.0
    for axes, (name, values) in zip(panels, trace.weightings.items(), strict=True):
        picture = axes.imshow(
            values.T, aspect="auto", origin="lower", interpolation="nearest", cmap="viridis", vmin=0, vmax=largest
        )
        for edge in spans.flat:
            axes.axvline(edge, color="white", linestyle=":", linewidth=1)
        axes.set(ylabel="slot", title=name)
    panels[-1].set_xlabel("time step")
    figure.colorbar(picture, ax=panels, label="weight", aspect=12 * len(panels))
    finish(panels, integer_x=True)
    return figure
