"""A report as one web page that needs no script, no other file and no network: tables, figures, and a list of the runs.

Imports no torch.
"""

import base64
import io
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gyral.core.html import page_template
from gyral.reports.plots.options import Options
from gyral.reports.render.text import runs_table
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import Entry
from gyral.runs.run_record import RunRecord, curve_names, measures_of

if TYPE_CHECKING:
    from gyral.reports.plots.panels import Panel

PANELS = 3  # of a figure; they are one below the other, so that a phone shows them in full size


def render(sections: Sequence[Section], notes: Sequence[str], title: str, **_: Any) -> str:
    """Return a report as a page.

    Args:
        sections: sections of the report.
        notes: lines about runs that cannot be read.
        title: title of a page with several sections.
    """
    title = sections[0].title if len(sections) == 1 else title
    drawings = [list(_draw(section)) for section in sections]
    return page_template(__file__).render(
        title=title,
        made=f"{datetime.now():%Y-%m-%d %H:%M}",
        sections=list(zip(sections, drawings, strict=True)),
        notes=notes,
        values_of=values_of,
        runs_table=runs_table,
    )


def values_of(entry: Entry) -> str:
    """Return the value of each run behind a number, which shows while the pointer is on it."""
    return ", ".join(f"seed {record.seed}: {value:.4g}" for record, value in entry.runs if value is not None)


def _draw(section: Section) -> Iterator[dict[str, str]]:
    """Yield the figures of a section: its curves, and the parameters of its rows against their scores."""
    from gyral.reports.plots.panels import make_panels  # with matplotlib, which no other format needs

    panels = make_panels([section])
    logged = {name for record in section.records for name in record.curves}
    first = "train/loss" if section.sweep and section.sweep.layout == "curves" else f"val/{section.measure}"
    names = [name for name in curve_names(measures_of(section.records).values()) if name in logged]
    names.sort(key=lambda name: name != first)
    for name in names if len(panels) <= PANELS else names[:1]:
        values = [value for record in section.records if name in record.curves for value in record.curves[name].values]
        is_log = name == first == "train/loss" and min(values, default=0) > 0  # the paper shows orders of magnitude
        yield from _drawings(panels, Options("curves", y=name, log="y" if is_log else ""))
    score = f"test/{section.measure}"
    scored = [row for row in section.rows if any(score in (record.results or {}) for record in row.records)]
    if len(scored) > 1:  # a single number is not a comparison
        yield from _drawings(panels, Options("parameters", y=score, log="x"))


def _drawings(panels: "Sequence[Panel]", options: Options) -> Iterator[dict[str, str]]:
    """Yield figures of a few panels each, those that have what the options ask for, with captions.

    Each is SVG in a data URL: neither its names nor its texts meet those of the page.
    """
    from gyral.plotting.style import style
    from gyral.reports.plots import drawing

    shown = [panel for panel in panels if any(_has(record, options) for record in panel.records)]
    for start in range(0, len(shown), PANELS):
        few = shown[start : start + PANELS]
        with style(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # in matplotlib's font; the browser has others
            figure = drawing.DRAW[options.plot](few, options)
            file = io.StringIO()
            figure.savefig(file, format="svg", metadata={"Date": None})
        url = f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue().encode()).decode()}"
        yield {"caption": drawing.describe(figure, few, options), "url": url}


def _has(record: RunRecord, options: Options) -> bool:
    """Return whether a run has a value of a figure's metric."""
    if options.plot == "curves":
        return options.y in record.curves and bool(record.curves[options.y].values)
    return options.y in (record.results or {})
