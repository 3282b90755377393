"""Figures of the cell benchmark, also of rows that it has recorded.

python -m benchmarks.plots benchmarks/records/growth.jsonl growth.png
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from omegaconf import OmegaConf

from gyral.config.groups import find_config
from gyral.plotting.layout import finish, make_grid
from gyral.plotting.style import add_legend, cell_styles, line_style, save, style
from gyral.runs.run_record import cell_of

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
    with style():
        height = None if panels else 0.21 * len(cases) + 0.1
        width = "page" if len(panels) > 1 else "column"
        figure, grid = make_grid(max(1, len(panels)), width, share_x=False, share_y=False, height=height)
        for axes, key in zip(grid, panels, strict=False):
            plot_growth(axes, found, cases, series[key], key)
        if not panels:
            plot_ratios(grid[0], found, cases, sizes, baseline)
        add_legend(figure, *grid[0].get_legend_handles_labels())
        finish(grid, integer_x=False, y_is_numeric=bool(panels))
        for axes, key in zip(grid, panels, strict=False):
            values = sorted(size[DIMENSIONS.index(key)] for size in series[key])
            axes.set_xticks(values, [f"{value:,}" for value in values])
            axes.minorticks_off()
        save(figure, Path(path), "Times of cells")


def longest_series(sizes: Sequence[Size], key: str) -> list[Size]:
    """Return the largest set of sizes that differ only in one dimension."""
    groups: dict[Size, list[Size]] = {}
    for size in sizes:
        rest = tuple(value for name, value in zip(DIMENSIONS, size, strict=True) if name != key)
        groups.setdefault(rest, []).append(size)
    return max(groups.values(), key=len)


def case_styles(cases: Sequence[Case]) -> dict[Case, dict[str, Any]]:
    """Return the color, dashes and marker of each case: those of its cell, hollow for torch's layer beside Gyral's."""
    ordered = sorted(cases, key=lambda case: case[1] in ("torch", "reference"))
    return dict(zip(ordered, cell_styles([cell_name(model) for model, _ in ordered]), strict=True))


def cell_name(model: str) -> str:
    """Return the name of the cell of a model such as "rum:lambd=1" or "torch.nn.GRU"."""
    name = model.partition(":")[0]
    if name.startswith("torch."):
        return name.rpartition(".")[2]
    return cell_of({"model": {"cell": dict(OmegaConf.load(find_config("cell", name)))}})


def plot_growth(axes: Axes, found: dict[Any, Row], cases: Sequence[Case], series: Sequence[Size], key: str) -> None:
    """Plot the time of every case over one dimension."""
    position, looks = DIMENSIONS.index(key), case_styles(cases)
    for case in cases:
        points = sorted((size[position], size) for size in series if (*case, *size) in found)
        times = [found[*case, *size]["train_ms"] for _, size in points]
        label = case[0] if case[1] in ("torch", "fused") else " ".join(case)
        axes.plot([value for value, _ in points], times, label=label, **looks[case])
    constant = ", ".join(f"{name} {series[0][DIMENSIONS.index(name)]}" for name in DIMENSIONS if name != key)
    axes.set(xscale="log", yscale="log", xlabel=key, ylabel="forward + backward (ms)")
    axes.set_title(f"growth with {key} ({constant})")


def plot_ratios(axes: Axes, found: dict[Any, Row], cases: Sequence[Case], sizes: Sequence[Size], baseline: str) -> None:
    """Plot the time of every case relative to the baseline, one marker per size."""
    positions = {case: position for position, case in enumerate(reversed(cases))}
    for index, size in enumerate(sizes):
        drawn = [case for case in cases if (*case, *size) in found]
        ratios = [found[*case, *size]["train_ratio"] for case in drawn]
        look = {**line_style(index), "linestyle": ""}
        axes.plot(ratios, [positions[case] for case in drawn], label="×".join(map(str, size)), **look)
    axes.axvline(1, color="gray", linewidth=1)
    axes.set_yticks(list(positions.values()), [" ".join(case) for case in positions])
    axes.set(xscale="log", xlabel=f"time of forward + backward / {baseline}'s", title="batch × steps × hidden")


if __name__ == "__main__":
    from benchmarks.measure import BASELINE  # with torch

    source, target = sys.argv[1:]
    plot([json.loads(line) for line in Path(source).read_text(encoding="utf-8").splitlines()], target, BASELINE)
