"""A figure of what each cell can track, recall, copy and model, and at what cost, and its numbers, from records alone.

Its rows are those of the table `atlas_small`, which others extend. Columns without a number are named below it.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

import language
import recall
import speeds
from language import LANGUAGE, ROWS, frame_of, labels, name_of
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from gyral.config.groups import generated_choices
from gyral.config.tables import load_table
from gyral.core.escaping import escape_markdown
from gyral.plotting.sizes import WIDTHS
from gyral.reports.catalogue import load
from gyral.reports.plots.solved import NOT_RUN, ROW, TINY, draw_cell, floor_of, is_mostly_solved, shade_of, values_of

MEMORY = "atlas_memory_small"
RATES = {"recall": "associative recall", "robustness_copy": "copying"}  # tables over learning rates, and their subjects
OF_TABLES = {f"model.cell.{name}" for name in ("hidden_size", "kernel_size", "decay", "gate")}  # no variant of a cell
FILE = "../assets/abilities.png"
MIDDLE = 0.4  # the shade of equal numbers


class Cell(NamedTuple):
    """A number of a row: its text, its shade from 0 to 1, and whether it is bold."""

    text: str
    shade: float = 0.0
    bold: bool = False


class Column(NamedTuple):
    """A column of the figure.

    Attributes:
        group: the title of its group of columns.
        head: its head.
        cells: its numbers, by the name of the row.
    """

    group: str
    head: str
    cells: dict[str, Cell]


def columns() -> list[Column]:
    """Return all columns, also those without a number."""
    return [
        *solved_columns(ROWS, -1),
        *(rate_column(table, subject) for table, subject in RATES.items()),
        *solved_columns(MEMORY),
        language_column(),
        cost_column(),
    ]


def solved_columns(table: str, *further: int) -> Iterator[Column]:
    """Yield the columns of a table with the layout "solved": medians of the main measure, and of some further ones.

    Args:
        table: the table.
        *further: places among the further measures.
    """
    frame = frame_of(table)
    sweep: Any = frame.sweep
    for measure in (sweep.main, *(sweep.measures[sweep.also[place]] for place in further)):
        group = f"{measure.label} ({measure.unit})" if table == ROWS else f"memory ({measure.unit})"
        for column in frame.columns:
            cells = {}
            for row in frame.rows:
                runs = frame.in_column(row, column)
                if own := values_of(frame, runs, measure.name, column):
                    is_solved = is_mostly_solved(sweep, runs, own)
                    shade = shade_of(median(own), floor_of(runs, measure.name))
                    cells[name_of(table, row.experiment)] = Cell(f"{median(own):.0f}", shade, is_solved)
            yield Column(group, sweep.head(column).replace("_", ", " if table == ROWS else " "), cells)


def rate_column(table: str, head: str) -> Column:
    """Return a column of a table over learning rates: the mean over the seeds at the best rate in validation.

    A row of this table is the row of the figure with the same cell and the same options of the cell, apart from those
    in `OF_TABLES`.
    """
    names = {_variant(ROWS, name): name for name in labels()}
    cells = {}
    for experiment, runs in recall.best_runs(table).items():
        name = names.get(_variant(table, name_of(table, experiment)))
        if name is not None:
            value = fmean(100 * run.metrics["test/accuracy"] for run in runs)
            shade = shade_of(value, floor_of(runs, "accuracy"))
            cells[name] = Cell(f"{value:.0f}", shade, value >= load(ROWS).solved)
    return Column("recall, copying (%)", head, cells)


def _variant(table: str, row: str) -> frozenset[tuple[str, Any]]:
    options = load_table(generated_choices("sweep")[table]).options(row).items()
    chosen = [(key, value) for key, value in options if key == "model" or key.startswith("model.cell.")]
    return frozenset((key, value) for key, value in chosen if key not in OF_TABLES)


def language_column() -> Column:
    """Return the bits per character, of which fewer are better and darker; the fewest are bold."""
    means = {name: fmean(values) for name, values in language.bits().items()}
    low, high = min(means.values(), default=0.0), max(means.values(), default=0.0)
    cells = {
        name: Cell(f"{mean:.2f}", (high - mean) / (high - low) if high > low else MIDDLE, f"{mean:.2f}" == f"{low:.2f}")
        for name, mean in means.items()
    }
    return Column("language", "bits per character", cells)


def cost_column() -> Column:
    """Return the times of a training step of the language model, without shades."""
    ratios = speeds.step_ratios(LANGUAGE)
    return Column(
        "language", "time of a step ×", {name: Cell(f"{ratios[name]:.2f}") for name in labels() if name in ratios}
    )


def ranked(shown: Sequence[Column]) -> list[str]:
    """Return the names of the rows with a number, in the order of the columns that they solve, then of their shades."""
    own = {name: [column.cells[name] for column in shown if name in column.cells] for name in labels()}
    rank = {name: (-sum(c.bold for c in cells), -sum(c.shade for c in cells)) for name, cells in own.items() if cells}
    return sorted(rank, key=lambda name: rank[name])


def picture() -> str:
    """Return the figure of all cells with a caption, and its numbers, as Markdown."""
    found = columns()
    shown, empty = [one for one in found if one.cells], [one for one in found if not one.cells]
    if not shown:
        return "No run has a record yet."
    names = ranked(shown)
    table = speeds.table(
        ["row", *(escape_markdown(f"{one.group}: {one.head}") for one in shown)],
        [[escape_markdown(labels()[name]), *(_text(one, name) for one in shown)] for name in names],
    )
    lacking = f" Without a number yet: {', '.join(escape_markdown(one.head) for one in empty)}." if empty else ""
    return (
        f"[![A heat map of {len(names)} cells, with a column for each task]({FILE})]({FILE})\n\n"
        "*Rows are cells, columns are tasks. Darker is better, from 0 or, where runs log it, chance; bold: solved, or"
        f" the fewest bits.*{lacking}"
        f"\n\n<details markdown>\n<summary>The numbers of the figure</summary>\n\n{table}\n\n</details>"
    )


def _text(column: Column, name: str) -> str:
    cell = column.cells.get(name)
    return "–" if cell is None else f"**{cell.text}**" if cell.bold else cell.text


def is_drawn() -> bool:
    """Return whether there is a number."""
    return any(one.cells for one in columns())


def draw() -> Figure:
    """Draw the columns that have a number, those of a group beside each other."""
    shown = [one for one in columns() if one.cells]
    names, groups = ranked(shown), list(dict.fromkeys(one.group for one in shown))
    own = [[one for one in shown if one.group == group] for group in groups]
    figure = Figure((WIDTHS["page"], ROW * len(names) + 1.3), layout=ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.02))
    grid = figure.subplots(1, len(groups), sharey=True, squeeze=False, width_ratios=[*map(len, own)])
    for axes, group, of_group in zip(grid.flat, groups, own, strict=True):
        axes.set_title(group.replace(" at ", "\nat ").replace(" (", "\n("), fontsize=6.5)
        axes.set_xticks(range(len(of_group)), [one.head for one in of_group], fontsize=TINY, rotation=90)
        axes.set_yticks(range(len(names)), [labels()[name] for name in names], fontsize=TINY)
        axes.tick_params(length=0, pad=1.5)
        axes.set(xlim=(-0.5, len(of_group) - 0.5), ylim=(len(names) - 0.5, -0.5))
        axes.spines[:].set_visible(False)
        for x, one in enumerate(of_group):
            for y, name in enumerate(names):
                draw_cell(axes, x, y, *one.cells.get(name, ()))
    figure.legend(handles=[Patch(label="not run", **NOT_RUN)], loc="outside lower right", fontsize=TINY)
    return figure
