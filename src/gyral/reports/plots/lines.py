"""The measure of rows over numbers: groups of test examples, such as by their length, or the values of an option."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.config.roles import key_of
from gyral.core.errors import OptionError
from gyral.plotting.layout import fits_log, spread
from gyral.plotting.style import SMALL, cell_styles, line_style, without_formulas
from gyral.reports.frame import Frame
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import THIN, Line, Panel, Points, Series, draw_panels, legend_of, measure_of, references
from gyral.reports.rows import Row, name_rows
from gyral.reports.tables.columns import varied_numbers
from gyral.runs.names import describe_option
from gyral.runs.run_record import RunRecord, select

GRAY = "#8a8a8a"  # of rows that are published only
PUBLISHED: dict[str, Any] = {"linestyle": (0, (1.5, 1.5)), "markerfacecolor": "white", "linewidth": 0.9}
MOST_TICKS, LONGEST_TICK = 8, 8  # places on the x axis with a tick each, and the signs of its label
PlaceOf = Callable[[RunRecord, str], float | None]


def draw_groups(frames: Sequence[Frame], options: Options) -> Figure:
    """Draw the measure of each row over the number of the group, with a panel for each frame.

    Published values are dotted lines with hollow marks: in the color of the row, or gray for rows that are published
    only.

    Raises:
        OptionError: no run has logged the measure of a group.
    """
    panels, trained = [], []
    for frame in frames:
        places = {group: float(group.partition(" ")[0]) for group in frame.groups(f"test/{frame.measure}")}
        if places:
            label = f"number of {next(iter(places)).partition(' ')[2]}"
            panels.append(_panel(frame, label, frame.rows, _in_columns(places), places.values(), with_published=True))
            trained.append(frame.sweep.trained if frame.sweep else None)
    if not panels:
        reason = "needs results by groups, such as test/accuracy_7_operators; no run has any"
        raise OptionError("plot", "groups", reason)
    figure = _draw(panels, options, integer_x=True)
    for axes, panel, number in zip(figure.axes, panels, trained, strict=True):
        if number is not None:  # a line at the right of the groups that training examples are of
            axes.axvline(number + 0.5, color="black", linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
            text, place = f"trained on ≤ {number} {panel.x.removeprefix('number of ')}", axes.get_xaxis_transform()
            axes.text(number + 0.4, 0.03, text, transform=place, ha="right", fontsize=SMALL)
    return figure


def draw_columns(frames: Sequence[Frame], options: Options) -> Figure:
    """Draw the measure of each row over the numbers of an option, with a panel for each frame.

    The option is `options.x` or, of a table, the one of its columns, and of other runs, the one that they vary.

    Raises:
        OptionError: no sweep has columns that are numbers, and the runs do not vary an option, or vary several.
    """
    panels = [panel for frame in frames if (panel := _over_option(frame, options.x)) is not None]
    if not panels:
        given, reason = ("x", options.x) if options.x else ("plot", "columns"), "needs runs that differ in an option"
        raise OptionError(*given, f"{reason} whose values are numbers, such as optimizer.lr=0.001,0.01")
    if not options.log and all(fits_log(np.array(panel.reach)) for panel in panels):
        options = replace(options, log="x")
    figure = _draw(panels, options, integer_x=False)
    for axes, panel in zip(figure.axes, panels, strict=True):
        _set_ticks(axes, panel.reach)
    return figure


def _draw(panels: Sequence[Panel], options: Options, *, integer_x: bool) -> Figure:
    if len(panels) == 1:
        panels = [replace(panels[0], title="")]
    draw = partial(draw_line, singly=options.seeds == "all")
    return draw_panels(panels, legend_of(panels), draw, options, integer_x=integer_x)


def _over_option(frame: Frame, key: str) -> Panel | None:
    """Return the panel of a frame over the values of an option; None if its runs do not vary one.

    Args:
        frame: the frame.
        key: the key of the option; "" for that of the columns of a table, or the only one that runs vary.

    Raises:
        OptionError: the key is "", and the runs vary several options.
    """
    sweep = frame.sweep
    if sweep and key in ("", sweep.column):
        found = {column: number for column in frame.columns if (number := _number(column)) is not None}
        if found:
            return _panel(frame, option_name(sweep.column or ""), frame.rows, _in_columns(found), found.values())
    varied = varied_numbers(frame.records)
    if not key and len(varied) > 1:
        raise OptionError("x", "<nothing>", f"must be one of {', '.join(varied)}, which the runs vary")
    key = key or next(iter(varied), "")
    if key not in varied:
        return None

    def place_of(run: RunRecord, column: str) -> float | None:
        return float(select(run.config, key)) if column == frame.column_of(run) else None

    return _panel(frame, option_name(key), _rows_without(frame, key), place_of)


def _rows_without(frame: Frame, key: str) -> list[Row]:
    """Return a row for the runs that differ in nothing but an option."""
    same: dict[tuple[str, ...], tuple[Row, list[RunRecord]]] = {}
    for row in frame.rows:
        for record in row.records:
            setting = (row.experiment, frame.column_of(record), *(o for o in row.setting if key_of(o) != key))
            same.setdefault(setting, (row, []))[1].append(record)
    rows = [replace(first, records=records, others=[], trials=[]) for first, records in same.values()]
    if not frame.sweep:
        return [replace(row, label=name) for row, name in zip(rows, name_rows(rows, without=(key,)), strict=True)]
    heads = [frame.sweep.head(setting[1]) if setting[1] else "" for setting in same]
    labels = ["\n".join(line for line in row.label.split("\n") if key_of(line) != key) for row in rows]
    return [
        replace(row, label=f"{label}\n{head}".strip()) for row, label, head in zip(rows, labels, heads, strict=True)
    ]


def option_name(key: str) -> str:
    """Return the name of an option: "learning rate" of optimizer.lr."""
    return describe_option(key, "").removesuffix(" = ")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _in_columns(places: Mapping[str, float]) -> PlaceOf:
    return lambda _, column: places.get(column)


def _panel(
    frame: Frame,
    label: str,
    rows: Sequence[Row],
    place_of: PlaceOf,
    places: Iterable[float] = (),
    with_published: bool = False,
) -> Panel:
    """Return the panel of rows over places on the x axis.

    Args:
        frame: the frame.
        label: the label of the axis.
        rows: its rows.
        place_of: returns the place of a run's number in a column, None for none.
        places: places that the axis has besides those of the runs.
        with_published: whether rows have published values by place.
    """
    metric, gray = f"test/{frame.measure}", 0
    series: list[Series] = []
    numbers: dict[str, list[tuple[str, float]]] = {}  # of each run, with their columns
    for number in frame.lines:
        if number.metric == metric and number.value is not None:
            numbers.setdefault(number.run.place, []).append((number.column, number.value))
    looks = cell_styles([row.records[0].cell if row.records else row.name for row in rows])
    for row, look in zip(rows, looks, strict=True):
        by_seed: dict[str, dict[float, float]] = {}
        for run in row.records:
            for column, value in numbers.get(run.place, ()):
                if (place := place_of(run, column)) is not None:
                    by_seed.setdefault(run.seed, {})[place] = value
        lines, name = [_line(by_seed[seed]) for seed in sorted(by_seed)], row.label.replace("\n", ", ")
        series.append(Series(without_formulas(name), {**look, "gid": "row"}, row.records, lines=lines))
        if with_published and (published := row.published_groups(frame.measure)):
            if frame.sweep and not frame.sweep.trains(row.experiment):
                look = {**line_style(gray), "color": GRAY, "markersize": 3, "zorder": 1.8}
                gray += 1
            name = without_formulas(f"{row.label.splitlines()[0]}, published")
            series.append(Series(name, {**look, **PUBLISHED, "gid": "published"}, lines=[_line(published)]))
    found: dict[str, dict[float, Series]] = {}
    runs = [(place_of(run, frame.column_of(run)), run) for row in rows for run in row.records]
    reach = sorted({*places, *(place for place, _ in runs if place is not None)})
    for place in reach:
        for one in references(metric, [run for own, run in runs if own == place]):
            found.setdefault(one.label, {})[place] = one
    for same in found.values():  # an option of the task may change them from place to place
        values = {place: one.lines[0].y[0] for place, one in same.items()}
        first, changes = next(iter(same.values())), len({f"{value:.3g}" for value in values.values()}) > 1
        series.append(replace(first, lines=[_line(values)]) if changes else first)
    measure = measure_of(metric, frame.records)
    return Panel(without_formulas(frame.title), series, metric, measure, label, reach)


def _line(values: Mapping[Any, float]) -> Line:
    """Return a line of values by place."""
    places = sorted(values)
    return Line(np.array(places, dtype=float), np.array([values[place] for place in places]))


def draw_line(axes: Axes, series: Series, panel: Panel, singly: bool = False) -> Iterator[Points]:
    """Draw the mean of a row with its band, or `singly` each seed, and yield the points that axes have to contain."""
    x = np.unique(np.concatenate([line.x for line in series.lines]))
    values = np.full((len(series.lines), len(x)), np.nan)
    for own, line in zip(values, series.lines, strict=True):
        own[np.searchsorted(x, line.x)] = line.y
    if singly:
        for own in values:
            axes.plot(x, own, **{**series.look, "linewidth": THIN})
        yield np.empty(0), values[np.isfinite(values)]
        return
    mean, low, high = spread(values, panel.bounds)
    axes.plot(x, mean, **series.look)
    yield x, mean
    if (high > low).any():
        axes.fill_between(x, low, high, color=series.look["color"], alpha=0.2, linewidth=0)
        yield x, low
        yield x, high


def _set_ticks(axes: Axes, places: Sequence[float]) -> None:
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
