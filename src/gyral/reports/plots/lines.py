"""The measure of rows over numbers: groups of test examples, such as by their length, or the columns of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gyral.config.roles import key_of
from gyral.core.errors import OptionError
from gyral.plotting.layout import clip_band, finish, fits_log, label_outer, make_grid, set_limits
from gyral.plotting.style import BASELINE, GUESS, SMALL, add_legend, cell_styles, line_style, without_formulas
from gyral.reports.numbers import Numbers
from gyral.reports.plots.curves import baselines, informed_guesses
from gyral.reports.plots.metrics import bounds_of, metric_label
from gyral.reports.plots.options import Options
from gyral.reports.rows import Row, columns_of, in_column, name_rows
from gyral.reports.tables.columns import varied_numbers
from gyral.reports.tables.lines_table import published_groups
from gyral.reports.tables.sections import Section
from gyral.runs.names import describe_option
from gyral.runs.run_record import RunRecord, select

GRAY = "#8a8a8a"  # of rows that are published only
PUBLISHED: dict[str, Any] = {"linestyle": (0, (1.5, 1.5)), "markerfacecolor": "white", "linewidth": 0.9}
THIN = 0.7  # points, the width of lines of single runs
BAND = 0.2  # opacity
MOST_TICKS, LONGEST_TICK = 8, 8  # places on the x axis with a tick each, and the signs of its label


@dataclass(frozen=True)
class Lines:
    """The lines of a section.

    Attributes:
        section: the section.
        label: the label of the x axis.
        x: (n,) places on the x axis, in increasing order.
        rows: for each row of the section, its values (seeds, n), NaN where one is missing.
        published: for each row, its published values by place.
        records: the runs at each place; empty if the places are groups of test examples of the same runs.
    """

    section: Section
    label: str
    x: np.ndarray
    rows: list[np.ndarray]
    published: list[dict[int, float]]
    records: list[list[RunRecord]] = field(default_factory=list)


def draw_groups(sections: Sequence[Section], options: Options) -> Figure:
    """Draw the measure of each row over the number of the group, with a panel for each section.

    Published values are dotted lines with hollow marks: in the color of the row, or gray for rows that are published
    only.

    Raises:
        OptionError: no run has logged the measure of a group.
    """
    lines = []
    for section in sections:
        groups = Numbers(section.rows, section.sweep).groups(f"test/{section.measure}")
        if groups:
            unit = groups[0].partition(" ")[2]
            published = [published_groups(row, section.measure) for row in section.rows]
            places = {group: float(group.partition(" ")[0]) for group in groups}
            lines.append(_read(section, f"number of {unit}", places, published))
    if not lines:
        reason = "needs results by groups, such as test/accuracy_7_operators; no run has any"
        raise OptionError("plot", "groups", reason)
    return _draw(lines, options, integer_x=True)


def draw_columns(sections: Sequence[Section], options: Options) -> Figure:
    """Draw the measure of each row over the numbers of an option, with a panel for each section.

    The option is `options.x` or, of a table, the one of its columns, and of other runs, the one that they vary.

    Raises:
        OptionError: no sweep has columns that are numbers, and the runs do not vary an option, or vary several.
    """
    lines = [found for section in sections if (found := _columns_of(section, options.x)) is not None]
    if not lines:
        given, reason = ("x", options.x) if options.x else ("plot", "columns"), "needs runs that differ in an option"
        raise OptionError(*given, f"{reason} whose values are numbers, such as optimizer.lr=0.001,0.01")
    if not options.log and all(fits_log(own.x) for own in lines):
        options = replace(options, log="x")
    return _draw(lines, options, integer_x=False)


def _columns_of(section: Section, key: str) -> Lines | None:
    """Return the lines of a section over the values of an option; None if its runs do not vary one.

    Args:
        section: the section.
        key: the key of the option; "" for that of the columns of a table, or the only one that runs vary.

    Raises:
        OptionError: the key is "", and the runs vary several options.
    """
    sweep = section.sweep
    if sweep and key in ("", sweep.column):
        columns = columns_of(sweep, section.rows)
        numbers = {column: number for column in columns if (number := _number(column)) is not None}
        if numbers:
            places = dict(sorted(numbers.items(), key=lambda pair: pair[1]))
            found = _read(section, option_name(sweep.column or ""), places, [{} for _ in section.rows])
            records = [[run for row in section.rows for run in in_column(sweep, row, column)] for column in places]
            return replace(found, records=records)
    varied = varied_numbers(section.records)
    if not key and len(varied) > 1:
        raise OptionError("x", "<nothing>", f"must be one of {', '.join(varied)}, which the runs vary")
    key = key or next(iter(varied), "")
    return _lines_over(section, key) if key in varied else None


def _lines_over(section: Section, key: str) -> Lines:
    """Return lines over the values of an option: one for the rows that differ in nothing else."""
    same: dict[tuple[str, ...], list[RunRecord]] = {}
    first: dict[tuple[str, ...], Row] = {}
    for row in section.rows:
        for record in row.records:
            column = section.sweep.column_of(record) if section.sweep else ""
            setting = (row.experiment, column, *(o for o in row.setting if key_of(o) != key))
            same.setdefault(setting, []).append(record)
            first.setdefault(setting, row)
    own = [replace(first[setting], records=records, others=[], trials=[]) for setting, records in same.items()]
    if section.sweep:
        heads = [section.sweep.head(setting[1]) if setting[1] else "" for setting in same]
        labels = ["\n".join(line for line in row.label.split("\n") if key_of(line) != key) for row in own]
        names = [f"{label}\n{head}".strip() if head else label for label, head in zip(labels, heads, strict=True)]
    else:
        names = name_rows(own, without=(key,))
    rows = [replace(row, label=name) for row, name in zip(own, names, strict=True)]
    places = sorted({float(select(record.config, key)) for row in rows for record in row.records})
    main = section.main
    values = []
    records: list[list[RunRecord]] = [[] for _ in places]
    for row in rows:
        seeds = sorted({record.seed for record in row.records if record.results})
        table = np.full((len(seeds), len(places)), np.nan)
        for record in row.records:
            place = places.index(float(select(record.config, key)))
            records[place].append(record)
            value = record.metrics.get(f"test/{section.measure}")
            if value is not None:
                table[seeds.index(record.seed), place] = value * (main.scale if main else 1)
        values.append(table)
    own_section = replace(section, rows=rows)
    return Lines(own_section, option_name(key), np.array(places), values, [{} for _ in rows], records)


def option_name(key: str) -> str:
    """Return the name of an option: "learning rate" of optimizer.lr."""
    return describe_option(key, "").removesuffix(" = ")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _read(section: Section, label: str, places: dict[str, float], published: list[dict[int, float]]) -> Lines:
    """Return the lines of a section over columns, each of which has a place on the x axis."""
    numbers = Numbers(section.rows, section.sweep)
    rows = []
    for row in section.rows:
        seeds = sorted({record.seed for record in row.records if record.results})
        values = np.full((len(seeds), len(places)), np.nan)
        for place, column in enumerate(places):
            for record, value in numbers.of(row.records, f"test/{section.measure}", column):
                if value is not None:
                    values[seeds.index(record.seed), place] = value
        rows.append(values)
    return Lines(section, label, np.array([*places.values()]), rows, published)


def _draw(lines: Sequence[Lines], options: Options, *, integer_x: bool) -> Figure:
    """Draw a panel for each section.

    A line is the mean over seeds with a band, or with seeds=all there is a line for each seed.
    """
    figure, axes = make_grid(len(lines), options.width, share_x=False, share_y=False)
    handles: dict[str, Line2D] = {}
    for one, own in zip(axes, lines, strict=True):
        if len(lines) > 1:
            one.set_title(without_formulas(own.section.title))
        handles |= _draw_section(one, own, options)
    measures = [metric_label(f"test/{own.section.measure}", own.section.records) for own in lines]
    label_outer(axes, [own.label for own in lines], measures)
    add_legend(figure, list(handles.values()), [without_formulas(label) for label in handles])
    finish(axes, integer_x=integer_x)
    for one, own in zip(axes, lines, strict=True):
        if own.records:
            _set_ticks(one, own.x)
    return figure


def _set_ticks(axes: Axes, places: np.ndarray) -> None:
    """Put a tick at each place on the x axis, in decimal notation, if there are few and their labels have room."""
    texts = [np.format_float_positional(place, trim="-") for place in places]
    if len(places) > MOST_TICKS or max(map(len, texts)) > LONGEST_TICK:
        return
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    needed = [0.6 * SMALL / 72 * figure.dpi * (len(text) + 1) for text in texts]  # pixels; a digit is 0.6 em wide
    at = axes.transData.transform(np.column_stack([places, np.full(len(places), axes.get_ylim()[0])]))[:, 0]
    if all(b - a >= (x + y) / 2 for a, b, x, y in zip(at, at[1:], needed, needed[1:], strict=False)):
        axes.set_xticks(places, texts)
        axes.minorticks_off()
        axes.yaxis.set_tick_params(which="minor", left=True)


def _draw_section(axes: Axes, lines: Lines, options: Options) -> dict[str, Line2D]:
    """Draw the rows of a section, and return the handles of a legend by their labels."""
    handles: dict[str, Line2D] = {}
    reach: list[float] = []
    references, sweep, main = 0, lines.section.sweep, lines.section.main
    cells = [row.records[0].cell if row.records else row.name for row in lines.section.rows]
    looks = cell_styles(cells)
    for row, values, published, look in zip(lines.section.rows, lines.rows, lines.published, looks, strict=True):
        measured = np.isfinite(values).any(axis=0)
        if measured.any():
            reach += _draw_row(axes, lines.x[measured], values[:, measured], look, options, bounds_of(main))
            handles[row.label.replace("\n", ", ")] = Line2D([], [], **look)
        if published:
            if sweep and not sweep.trains(row.experiment):
                look = {**line_style(references), "color": GRAY, "markersize": 3, "zorder": 1.8}
                references += 1
            axes.plot(list(published), list(published.values()), gid="published", **{**look, **PUBLISHED})
            reach += published.values()
            handles[f"{row.label.splitlines()[0]}, published"] = Line2D([], [], **{**look, **PUBLISHED})
    for (gid, label), (scores, look) in _references(lines).items():
        if len({f"{score:.3g}" for score in scores.values()}) == 1:
            axes.axhline(next(iter(scores.values())), gid=gid, **look)
        else:
            axes.plot([*scores], [*scores.values()], gid=gid, **look)
        reach += scores.values()
        handles[label] = Line2D([], [], **look)
    if sweep and sweep.trained is not None:
        _mark_trained(axes, sweep.trained, lines.label.removeprefix("number of "))
    x = np.array([*lines.x, *chain.from_iterable(lines.published)])
    set_limits(axes, "x", x, log="x" in options.log, bounds=None)
    set_limits(axes, "y", np.array(reach), log="y" in options.log, bounds=bounds_of(main))
    return handles


def _references(lines: Lines) -> dict[tuple[str, str], tuple[dict[float, float], dict[str, Any]]]:
    """Return the scores by place of the best predictor without memory and of informed guesses, and their styles.

    An option of the task may change them from place to place.
    """
    metric = f"test/{lines.section.measure}"
    found: dict[tuple[str, str], tuple[dict[float, float], dict[str, Any]]] = {}
    for place, records in zip(lines.x, lines.records, strict=False):
        scores = [(("baseline", "memoryless baseline"), value, BASELINE) for value in baselines(records, metric)]
        scores += [(("guess", label), value, GUESS) for label, value in informed_guesses(records, metric)]
        for name, value, look in scores:
            found.setdefault(name, ({}, look))[0][float(place)] = value
    return found


def _draw_row(
    axes: Axes,
    x: np.ndarray,
    values: np.ndarray,
    look: dict[str, Any],
    options: Options,
    bounds: tuple[float, float] | None,
) -> list[float]:
    """Draw the values (seeds, x) of a row, NaN where one is missing, and return the values for the axis limits."""
    if options.seeds == "all":
        for own in values:
            axes.plot(x, own, gid="row", **{**look, "linewidth": THIN})
        return [*values[np.isfinite(values)]]
    mean = np.nanmean(values, axis=0)
    axes.plot(x, mean, gid="row", **look)
    if len(values) == 1:
        return [*mean]
    counts = np.isfinite(values).sum(axis=0)
    spread = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(counts - 1, 1))
    low, high = clip_band(mean - spread, mean + spread, [values[np.isfinite(values)]], bounds)
    axes.fill_between(x, low, high, color=look["color"], alpha=BAND, linewidth=0)
    return [*low, *high]


def _mark_trained(axes: Axes, number: int, unit: str) -> None:
    """Draw a line at the right of the groups that training examples are of."""
    axes.axvline(number + 0.5, color="black", linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
    text = f"trained on ≤ {number} {unit}"
    axes.text(number + 0.4, 0.03, text, transform=axes.get_xaxis_transform(), ha="right", fontsize=SMALL)
