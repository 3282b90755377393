"""A report as one web page that needs no other file and no network. Imports no torch.

Scripts of this package draw the charts: they weigh 35 kB, and a plotting library weighs 4 MB per page.
"""

import json
import math
from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from gyral.core.html import page_template
from gyral.core.measures import Measure, loss_unit
from gyral.reports.catalogue import column_of
from gyral.reports.figures.curve_data import scale_of
from gyral.reports.render.text import labelled_runs, one_line
from gyral.reports.tables.cells import Table, TableCell
from gyral.reports.tables.sections import Section, describe_stopped
from gyral.runs.names import describe_option
from gyral.runs.run_record import POINTS, RunRecord, curve_names, measures_of

FOLDER = Path(__file__).parent
SCRIPTS = ("charts.js", "page.js")
SPLITS = {"train": "training", "val": "validation"}
SHARE = (0, 100)  # bounds of a measure in %
IN_UNITS_OF_LOSS = ("loss", "mse")


def render(title: str, sections: Sequence[Section], notes: Sequence[str]) -> str:
    """Return a report as a page.

    Args:
        title: title of a page with several sections.
        sections: sections of the report.
        notes: lines about runs that cannot be read.
    """
    from markupsafe import Markup  # of jinja2, which no other report needs

    title = sections[0].title if len(sections) == 1 else title
    places: dict[str, int] = {}  # index of each run in the page's data
    runs: list[dict[str, Any]] = []
    charts: list[dict[str, Any]] = []
    body = [f"<h1>{escape(title)}</h1>", f"<p class=faint>{escape(_introduction(sections))}</p>"]
    for section in sections:
        for label, record in labelled_runs(section):
            places[record.place] = len(runs)
            runs.append(_run(record, label, section))
        if len(sections) > 1:
            body.append(f"<h2>{escape(section.title)}</h2>")
        body += _section(section, places, len(charts))
        charts.append(_charts(section, places))
    if notes:
        body += ["<h2>Runs that cannot be read</h2>", _list(notes)]
    data = {"runs": runs, "sections": charts}
    content = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    content = content.replace("<", "\\u003c")  # no markup, neither the end of the script nor a comment in it
    body.append(f'<script type="application/json" id="data">{content}</script>')
    script = "".join((FOLDER / name).read_text() for name in SCRIPTS)
    body.append(f"<script>\n{script}</script>")
    style = (FOLDER / "page.css").read_text()
    return page_template(__file__).render(title=title, style=Markup(style), body=Markup("\n".join(body)))


def _introduction(sections: Sequence[Section]) -> str:
    """Return the lines below the page's title."""
    curves = [curve for section in sections for record in section.records for curve in record.curves.values()]
    lines = [f"Made on {datetime.now():%Y-%m-%d %H:%M}. Click a number to see its runs."]
    if any(curve.logged > len(curve.values) for curve in curves):
        lines.append(
            f"Curves of more than {POINTS} points are thinned to the minimum and the maximum of each of {POINTS // 2}"
            " bins, without values that are not finite."
        )
    return " ".join(lines)


def _run(record: RunRecord, label: str, section: Section) -> dict[str, Any]:
    """Return the data of a run for the page's script."""
    origin, results = record.provenance, record.results or {}
    return {
        "label": label,
        "cell": record.cell,
        "task": record.task,
        "group": _group(section, record),
        "seed": record.seed,
        "state": record.state,
        "reason": record.reason,
        "steps": record.steps,
        "place": record.place,
        "commit": origin.commit,
        "changed": origin.changed,
        "command": origin.command,
        "overrides": " ".join(record.overrides.values()),
        "wandb": origin.identity,
        "started": origin.started,
        "host": origin.host,
        "parameters": results.get("parameters"),
        "score": _finite(section.main.value(results) if section.main else results.get("test/loss")),
        "floors": {name: floors for name in record.curves if (floors := _floors(record, name))},
        "test": {
            name: _scaled(results.get(f"test/{_measure(name)}"), name, record)
            for name in record.curves
            if name.startswith("val/")
        },
        "curves": {
            name: [curve.steps, [_round(scale_of(name, record) * value) for value in curve.values]]
            for name, curve in record.curves.items()
        },
    }


def _floors(record: RunRecord, name: str) -> list[tuple[str, float]]:
    """Return the names and the values of the horizontal lines in the chart of a metric: what a model without memory
    or without the input reaches.
    """
    results = record.results or {}
    found: list[tuple[str, float | None]] = []
    if _measure(name) in IN_UNITS_OF_LOSS:
        baseline = results.get("test/baseline") if record.baseline is None else record.baseline
        found.append(("memoryless baseline", _scaled(baseline, name, record)))
    floors = (floor for floor in record.measures if floor.floor_of == _measure(name))
    found += [(floor.label, _finite(floor.value(results))) for floor in floors]
    return [(label, _round(value)) for label, value in found if value is not None]


def _measure(name: str) -> str:
    return name.rpartition("/")[2]


def _scaled(value: float | None, name: str, record: RunRecord) -> float | None:
    return None if value is None else _finite(scale_of(name, record) * value)


def _metric(name: str, unit: str, known: dict[str, Measure]) -> tuple[str, str, tuple[int, int] | None]:
    """Return a metric for the page's script: its name, its title, and the bounds of its values.

    Args:
        name: the name in metrics.csv, such as val/accuracy.
        unit: the unit of the loss.
        known: the measures of the runs.
    """
    split, measure = name.split("/")
    if measure not in known:
        return name, f"{SPLITS[split]} {measure} ({unit})", None
    return name, f"{SPLITS[split]} {known[measure].title}", SHARE if known[measure].unit == "%" else None


def _group(section: Section, record: RunRecord) -> str:
    """Return the panel that shows a run: its task and, if the sweep has columns, its column."""
    sweep = section.sweep
    if sweep is None or sweep.column is None:
        return record.task
    return f"{record.task}, {describe_option(sweep.column_name, column_of(sweep, record))}"


def _charts(section: Section, places: dict[str, int]) -> dict[str, Any]:
    """Return the data of a section's charts for the page's script."""
    records = section.records
    first = "train/loss" if section.sweep and section.sweep.layout == "curves" else f"val/{section.measure}"
    names = {name for record in records for name in (*(record.results or {}), *record.curves)}
    unit, known = loss_unit(names), measures_of(records)
    score = f"test {section.main.title}" if section.main else f"test loss ({unit})"
    scored = [row for row in section.rows if any(f"test/{section.measure}" in (r.results or {}) for r in row.records)]
    paper = []
    for row, label in zip(section.rows, section.labels, strict=True):
        parameters, published = row.paper.get("parameters"), row.paper.get(section.measure)
        groups = {_group(section, record): column_of(section.sweep, record) for record in row.records if section.sweep}
        for group, column in groups.items():
            value = published.get(column) if isinstance(published, dict) else published
            if parameters is not None and value is not None:
                paper.append([one_line(label), group, parameters, value])
    return {
        "name": section.sweep.name if section.sweep else records[0].task if records else "",
        "runs": [places[record.place] for record in records],
        "metrics": [_metric(name, unit, known) for name in curve_names(known.values()) if name in names],
        "first": first,
        "log": first == "train/loss",  # of which the paper shows orders of magnitude
        "score": score if len(scored) > 1 or paper else None,  # a single number is no comparison
        "bounds": SHARE if section.main and section.main.unit == "%" else None,
        "paper": paper,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _round(value: float) -> float:
    return float(f"{value:.5g}")  # finer than the pixels of any screen


def _section(section: Section, places: dict[str, int], number: int) -> list[str]:
    parts = [_table(table, places) for table in section.tables]
    parts += [f"<p class=faint>{escape(text)}</p>" for text in (f"{section.tables[0].caption}.", *section.footnotes)]
    if section.shortfall:
        parts.append(f"<p>{escape(section.shortfall)}</p>")
    if section.stopped:
        parts.append(_list([describe_stopped(record) for record in section.stopped]))
    if section.commands:
        parts.append(f"<p>To run them:</p><pre>{escape(chr(10).join(section.commands))}</pre>")
    if any(record.curves for record in section.records):
        parts.append(f'<div data-charts="{number}"></div>')
    return parts


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _table(table: Table, places: dict[str, int]) -> str:
    last = len(table.heads) - 1
    heads = []
    for index, head in enumerate(table.heads):
        prose = " class=prose" if table.prose and index == last else ""
        heads.append(f"<th{prose}>{escape(head).replace(chr(10), '<br>')}</th>")
    rows = []
    for label, cells in table.rows:
        name, *details = label.split("\n")
        first = escape(name) + "".join(f"<br><small>{escape(detail)}</small>" for detail in details)
        others = [
            f"<td{' class=prose' if table.prose and index == last else ''}>{_cell(cell, places)}</td>"
            for index, cell in enumerate(cells, start=1)
        ]
        rows.append(f"<tr><th>{first}</th>{''.join(others)}</tr>")
    head, body = "".join(heads), "".join(rows)
    return (  # where it is wider than the page, the script makes it a stop for the keyboard
        "<div class=scroll role=region aria-label=table>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: TableCell, places: dict[str, int]) -> str:
    text, *notes = cell.lines or [""]
    shown = escape(text)
    if cell.runs:
        runs = ",".join(
            f"[{places[record.place]},{'null' if _finite(value) is None else value}]" for record, value in cell.runs
        )
        shown = f'<button type=button class=number aria-expanded=false data-runs="[{runs}]">{shown}</button>'
    missing = set(cell.missing)
    if cell.best:
        shown = f"<strong>{shown}</strong>"
    if text in missing:
        shown = f"<span class=bad>{shown}</span>"
    for note in notes:
        shown += f"<small{' class=bad' if note in missing else ''}>{escape(note)}</small>"
    return shown
