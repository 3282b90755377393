"""Figures of the cell benchmark."""

from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

DIMENSIONS = ("batch", "steps", "hidden")

Row = dict[str, Any]
Size = tuple[int, ...]  # values of DIMENSIONS
Case = tuple[str, str]  # model and backend


def plot(rows: Sequence[Row], path: str, baseline: str) -> None:
    """Plot how times grow with each dimension that varies; if none does, the times relative to the baseline.

    Args:
        rows: Rows of `benchmarks.cells.measure_cases`.
        path: The file to write.
        baseline: Name of the model whose times are the unit of `train_ratio`.
    """
    found = {(row["model"], row["backend"], *(row[key] for key in DIMENSIONS)): row for row in rows}
    cases = list(dict.fromkeys((row["model"], row["backend"]) for row in rows))
    sizes = list(dict.fromkeys(tuple(row[key] for key in DIMENSIONS) for row in rows))
    series = {key: longest_series(sizes, key) for key in ("steps", "hidden", "batch")}
    panels = [key for key, varied in series.items() if len(varied) > 2]
    columns = max(1, len(panels))
    figure, axes = pyplot.subplots(1, columns, figsize=(6.5 * columns, 5.5), squeeze=False)
    for axis, key in zip(axes[0], panels, strict=False):
        plot_growth(axis, found, cases, series[key], key)
    if not panels:
        plot_ratios(axes[0][0], found, cases, sizes, baseline)
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def longest_series(sizes: Sequence[Size], key: str) -> list[Size]:
    """Return the largest set of sizes that differ only in one dimension."""
    groups: dict[Size, list[Size]] = {}
    for size in sizes:
        rest = tuple(value for name, value in zip(DIMENSIONS, size, strict=True) if name != key)
        groups.setdefault(rest, []).append(size)
    return max(groups.values(), key=len)


def plot_growth(axis: Any, found: dict[Any, Row], cases: Sequence[Case], series: Sequence[Size], key: str) -> None:
    """Plot the time of every case over one dimension."""
    position = DIMENSIONS.index(key)
    for case, color in zip(cases, map(pyplot.get_cmap("tab20"), range(len(cases))), strict=False):
        points = sorted((size[position], size) for size in series if (*case, *size) in found)
        axis.plot(
            [value for value, _ in points],
            [found[*case, *size]["train_ms"] for _, size in points],
            "--" if case[1] in ("torch", "reference") else "-",
            color=color,
            marker="o",
            label=" ".join(case),
        )
    constant = ", ".join(f"{name} {series[0][DIMENSIONS.index(name)]}" for name in DIMENSIONS if name != key)
    title = f"growth with {key} ({constant})"
    axis.set(xscale="log", yscale="log", xlabel=key, ylabel="forward + backward, ms", title=title)
    values = sorted(size[position] for size in series)
    axis.set_xticks(values, [str(value) for value in values])
    axis.yaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    axis.grid(alpha=0.3)


def plot_ratios(axis: Any, found: dict[Any, Row], cases: Sequence[Case], sizes: Sequence[Size], baseline: str) -> None:
    """Plot the time of every case relative to the baseline, one marker per size."""
    positions = {case: position for position, case in enumerate(reversed(cases))}
    for size, marker in zip(sizes, "osD^v<>Pp*", strict=False):
        drawn = [case for case in cases if (*case, *size) in found]
        ratios = [found[*case, *size]["train_ratio"] for case in drawn]
        axis.plot(ratios, [positions[case] for case in drawn], marker, label="×".join(map(str, size)))
    axis.axvline(1, color="gray", linewidth=1)
    axis.set_yticks(list(positions.values()), [" ".join(case) for case in positions])
    axis.set(xscale="log", xlabel=f"time of forward + backward / {baseline}'s", title="batch × steps × hidden")
    axis.grid(alpha=0.3)
