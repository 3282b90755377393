"""A report as one web page that needs no other file and no network. Imports no torch.

Its script draws the curves: a few hundred lines of our own weigh 20 kB, a plotting library 4 MB a page.
"""

import json
import math
from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from gyral.reports import catalogue as sweeps
from gyral.reports.catalogue import CURVES, POINTS, Job
from gyral.reports.render.formats import one_line
from gyral.reports.tables import SCALES, Cell, Section, Table, why

TEMPLATE = Path(__file__).with_name("page.html")
SCORES = {"accuracy": "test accuracy in %", "bits": "test bits per symbol", "perplexity": "test perplexity"}
HINT = (
    "Click a number for the runs behind it, or a curve for its run. Drag over a chart to zoom into it, double-click for"
    " the whole range. ◆ is the score on test; the dotted line is the memoryless baseline."
)


def render(where: str, sections: Sequence[Section], told: Sequence[str]) -> str:
    """Return a report's page.

    Args:
        where: what was reported on, for the page's title.
        sections: of the report.
        told: lines on what could not be read.
    """
    places: dict[str, int] = {}  # of runs, by which the page's tables and curves find them
    runs: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    body: list[str] = []
    for section in sections:
        for row, label in zip(section.rows, section.labels, strict=True):
            for job in row.jobs:
                places[job.place] = len(runs)
                runs.append(_run(job, one_line(label), section))
        if len(sections) > 1:
            body.append(f"<h2>{escape(section.title)}</h2>")
        body += _section(section, places, len(shown))
        shown.append(_charts(section, places))
    if told:
        body += ["<h2>Not read</h2>", _items(told)]
    thinned = any(
        curve.logged > len(curve.values) for section in sections for j in section.jobs for curve in j.curves.values()
    )
    notes = [f"Made on {datetime.now():%Y-%m-%d %H:%M}.", HINT]
    if thinned:
        notes.append(
            f"Curves of more than {POINTS} points are thinned to the lowest and highest of each of {POINTS // 2} bins,"
            " and values that are not finite left out."
        )
    data = {"runs": runs, "sections": shown, "metrics": CURVES}
    return Template(TEMPLATE.read_text()).safe_substitute(
        title=escape(sections[0].title if len(sections) == 1 else where),
        made=escape(" ".join(notes)),
        body="\n".join(body),
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("</", "<\\/"),
    )


def _run(job: Job, label: str, section: Section) -> dict[str, Any]:
    """Return what the page's script knows of a run."""
    known, results = job.provenance, job.results or {}
    scale = SCALES[section.measure][0] if section.measure in SCALES else 1
    score = results.get(f"test/{section.measure}")
    return {
        "label": label,
        "cell": job.cell,
        "task": job.task,
        "group": _group(section, job),
        "seed": job.seed,
        "state": job.state,
        "reason": job.reason,
        "steps": job.steps,
        "place": job.place,
        "commit": known.commit,
        "changed": known.changed,
        "command": known.command,
        "overrides": " ".join(job.overrides.values()),
        "wandb": known.identity,
        "started": known.started,
        "host": known.host,
        "baseline": _finite(job.baseline),
        "parameters": results.get("parameters"),
        "score": None if score is None else _finite(scale * score),
        "test": {name: _finite(results.get(f"test/{name}")) for name in ("loss", *SCALES)},
        "curves": {name: [curve.steps, [_round(v) for v in curve.values]] for name, curve in job.curves.items()},
    }


def _group(section: Section, job: Job) -> str:
    """Return what is drawn in one panel: a task, of a sweep with columns one of them."""
    sweep = section.sweep
    if sweep is None or sweep.column is None:
        return job.task
    return f"{job.task}, {sweep.column.rpartition('.')[2]}={sweeps.column_of(sweep, job)}"


def _charts(section: Section, places: dict[str, int]) -> dict[str, Any]:
    jobs = section.jobs
    first = "train/loss" if section.sweep and section.sweep.layout == "curves" else f"val/{section.measure}"
    scored = any(f"test/{section.measure}" in (job.results or {}) for job in jobs)
    paper = []
    for row, label in zip(section.rows, section.labels, strict=True):
        parameters, published = row.paper.get("parameters"), row.paper.get(section.measure)
        for group in dict.fromkeys(_group(section, job) for job in row.jobs):
            value = published.get(group.rpartition("=")[2]) if isinstance(published, dict) else published
            if parameters is not None and value is not None:
                paper.append([one_line(label), group, parameters, value])
    return {
        "runs": [places[job.place] for job in jobs],
        "first": first,
        "score": SCORES.get(section.measure, "test loss in nats") if scored else None,
        "paper": paper,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _round(value: float) -> float:
    return float(f"{value:.5g}")  # finer than any screen


def _section(section: Section, places: dict[str, int], number: int) -> list[str]:
    parts = [_table(table, places) for table in section.tables]
    parts += [f"<p class=soft>{escape(text)}</p>" for text in (f"{section.tables[0].caption}.", *section.footnotes)]
    if section.shortfall:
        parts.append(f"<p>{escape(section.shortfall)}</p>")
    if section.stopped:
        parts.append(_items([why(job) for job in section.stopped]))
    if section.commands:
        parts.append(f"<p>To go on:</p><pre>{escape(chr(10).join(section.commands))}</pre>")
    if any(job.curves for job in section.jobs):
        parts.append(f'<div data-charts="{number}"></div>')
    return parts


def _items(lines: Sequence[str]) -> str:
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
        told = [
            f"<td{' class=prose' if table.prose and index == last else ''}>{_cell(cell, places)}</td>"
            for index, cell in enumerate(cells, start=1)
        ]
        rows.append(f"<tr><th>{first}</th>{''.join(told)}</tr>")
    return (
        f"<div class=scroll><table><thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(cell: Cell, places: dict[str, int]) -> str:
    text, *notes = cell.lines or [""]
    shown = escape(text)
    if cell.jobs:
        behind = ",".join(
            f"[{places[job.place]},{'null' if _finite(value) is None else value}]" for job, value in cell.jobs
        )
        shown = f'<button type=button class=number aria-expanded=false data-runs="[{behind}]">{shown}</button>'
    lacks = set(cell.lacks)
    if text in lacks:
        shown = f"<span class=bad>{shown}</span>"
    for note in notes:
        shown += f"<small{' class=bad' if note in lacks else ''}>{escape(note)}</small>"
    return shown
