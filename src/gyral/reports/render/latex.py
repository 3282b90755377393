"""A report as LaTeX tables that fit a page. Imports no torch."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from textwrap import wrap
from typing import Any
from unicodedata import east_asian_width

from gyral.reports.render.text import labelled_runs, one_line, run_line
from gyral.reports.rows import UNVERIFIED
from gyral.reports.tables.cells import TRANSCRIBED
from gyral.reports.tables.columns import without_details
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import SHARED, Entry, Table
from gyral.runs.run_record import remarks_of

ESCAPES = {  # characters with a meaning in LaTeX, or without a glyph in its standard fonts
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"{{{sign}}}" for sign in "[]*"},  # after \\ they would begin an argument
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\N{NO-BREAK SPACE}": "~",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"$^\S$",
    "−": "$-$",
    "°": r"$^\circ$",
    "′": "$'$",
    "″": "$''$",
    "²": "$^2$",
    "√": r"$\surd$",
    "∞": r"$\infty$",
    **{
        sign: f"$\\{name}$"
        for sign, name in (
            ("±", "pm"), ("×", "times"), ("≥", "geq"), ("≤", "leq"), ("→", "to"), ("α", "alpha"), ("β", "beta"),
            ("γ", "gamma"), ("δ", "delta"), ("ε", "varepsilon"), ("η", "eta"), ("θ", "theta"), ("λ", "lambda"),
            ("μ", "mu"), ("ρ", "rho"), ("σ", "sigma"), ("τ", "tau"), ("φ", "varphi"), ("ω", "omega"),
        )
    },
}  # fmt: skip
PRINTED = "–—‘’“”…"  # that LaTeX prints, besides Latin letters with accents
GREEK_OPTION = re.compile(r"\$(\\[a-z]+)\$ = (-?[\d.]+)(?![\w.])")  # "$\lambda$ = 1"
MARKS = {"°": r"\circ", "*": "*", "†": r"\dagger", "‡": r"\ddagger", "?": "?"}
LACKING = "§"  # the mark of a number some runs of which are missing
NUMBER = re.compile(rf"(-?[\d,]+(?:\.\d+)?)([{''.join(MARKS)}]*)(?: ± ([\d.]+|nan|inf))?")
NUMBERED = re.compile(r"(?:Table|Figure) \d+: ")  # LaTeX numbers tables itself
ENVIRONMENTS = {None: "table", "column": "table", "page": "table*"}
WIDTHS = {None: 345, "column": 240, "page": 490}  # in pt, of the text of an article, and in two columns
# Commands and scales of the fonts with the space at both sides of a column in pt, in the order of preference
FITS = (
    *(("", 1.0, 6), (r"\small", 0.93, 6), (r"\footnotesize", 0.86, 6), (r"\footnotesize", 0.86, 4)),
    *((r"\scriptsize", 0.79, 4), (r"\scriptsize", 0.79, 3)),
)
GAP = 6  # pt, of LaTeX itself
HEAD_WIDTH = 12  # characters of a line in the head of a column with shorter numbers
NARROW = " .,:;'()[]|!ijlftrI-"
NARROW_WIDTH, WIDE_WIDTH, WIDTH, SQUARE_WIDTH = 3.4, 7.6, 5.2, 10.0  # pt, of characters at the normal size of 10 pt


def render(sections: Sequence[Section], notes: Sequence[str], title: str, width: str | None = None, **_: Any) -> str:
    """Return a report as LaTeX tables, with the runs behind them in comments.

    Args:
        sections: its sections.
        notes: lines about runs that cannot be read.
        title: the sweep or directory of the runs, for the labels of its tables.
        width: "column" or "page" (`table*`) of a page with two columns, or None for a page with one.
    """
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r'% Other columns: gyral report "columns=[…]"; all columns: .md and .html.',
    ]
    labels: dict[str, int] = {}
    for section in sections:
        for table in section.tables:
            label = _label(section, title, len(sections) > 1)
            labels[label] = labels.get(label, 0) + 1
            own = label if labels[label] == 1 else f"{label}-{labels[label]}"
            lines += ["", *_table(without_details(table), section, own, width)]
        comments = [shared for table in section.tables if (shared := "".join(table.caption.partition(SHARED)[1:]))]
        comments += [*section.footnotes, *section.stopped, section.shortfall, *section.commands]
        for row, record in labelled_runs(section):
            comments.append(f"{row}: {run_line(record)}: {record.provenance.command}")
        lines += [_comment(text.removeprefix("; ")) for text in comments if text]
    found = "".join(
        sorted({sign for line in lines if not line.startswith("%") for sign in line if not _is_latin(sign)})
    )
    if found:
        lines.insert(1, _comment(f"Needs XeLaTeX or LuaLaTeX, and a font with {found}"))
    return "\n".join((*lines, *map(_comment, notes))) + "\n"


def _label(section: Section, name: str, is_one_of_many: bool) -> str:
    """Return the label of a section's tables: the name of its sweep, or the directory of its runs."""
    words = [section.sweep.name] if section.sweep else [PurePath(name).name or "runs"]
    if not section.sweep and is_one_of_many and section.records:
        words.append(section.records[0].task)
    return "tab:" + re.sub(r"[^A-Za-z0-9_.]+", "-", "-".join(words)).strip("-")


def _table(table: Table, section: Section, label: str, width: str | None) -> list[str]:
    table = table.without_empty_rows()
    alignment = "l" + "r" * (len(table.heads) - 1)
    if table.prose:
        alignment = alignment[:-1] + r"p{0.4\linewidth}"
    end = r"\tabularnewline" if table.prose else r"\\"  # \raggedright has another meaning of \\
    heads = [_head_lines(table, index) for index in range(len(table.heads))]
    body = []
    for name, entries in table.rows:
        shown = [_entry(entry, table.prose and index == len(entries)) for index, entry in enumerate(entries, start=1)]
        body.append(f"    {' & '.join((_name(one_line(name)), *shown))} {end}")
    environment = ENVIRONMENTS[width]
    return [
        f"\\begin{{{environment}}}",
        r"  \centering",
        r"  \setlength{\belowcaptionskip}{6pt}",
        f"  \\caption{{{_caption(table, section)}}}",
        f"  \\label{{{label}}}",
        *(f"  {command}" for command in _fit(table, heads, WIDTHS[width])),
        f"  \\begin{{tabular}}{{@{{}}{alignment}@{{}}}}",
        r"    \toprule",
        f"    {' & '.join(map(_head, heads))} {end}",
        r"    \midrule",
        *body,
        r"    \bottomrule",
        r"  \end{tabular}",
        f"\\end{{{environment}}}",
    ]


def _caption(table: Table, section: Section) -> str:
    title = NUMBERED.sub("", table.title or f"{section.title}, by {table.heads[0]}")
    if title.partition(" ")[0].islower():
        title = title[0].upper() + title[1:]
    # the overrides of all rows are in a comment: a paper has them in its text
    parts = [": ".join(filter(None, (title, table.caption.partition(SHARED)[0])))]
    entries = [entry for _, row in table.rows for entry in row]
    if any(entry.best for entry in entries):
        parts.append("Best in bold")
    if any(_lacks_runs(entry) for entry in entries):
        parts.append(f"{LACKING}\N{NO-BREAK SPACE}Some runs are missing")
    meanings = [(remark.mark, remark.footnote) for remark in remarks_of(section.records)]
    for mark, meaning in (*meanings, TRANSCRIBED, (UNVERIFIED, "published values that nobody has compared")):
        if any(number and mark in number[2] for number in (NUMBER.fullmatch(_text(entry)) for entry in entries)):
            parts.append(f"{mark}\N{NO-BREAK SPACE}{meaning[:1].upper()}{meaning[1:]}")
    # long words, such as overrides, may break after an underscore
    return _escape("".join(f"{part}. " for part in parts).rstrip()).replace(r"\_", r"\_\allowbreak ")


def _head_lines(table: Table, index: int) -> list[str]:
    """Return the lines of a column's head, which are about as long as the numbers below it; names need no head."""
    if index == 0:
        return [] if table.heads[0] == "row" else [table.heads[0]]
    longest = max((HEAD_WIDTH, *(len(_text(entries[index - 1])) for _, entries in table.rows)))
    return [part for line in table.heads[index].split("\n") for part in wrap(line, longest, break_long_words=False)]


def _fit(table: Table, heads: Sequence[Sequence[str]], available: float) -> list[str]:
    """Return the commands by which a table fits a width in pt, as far as its font can be made smaller."""
    columns = [[*heads[0], *(one_line(name) for name, _ in table.rows)]]
    columns += [[*lines, *(_text(entries[i]) for _, entries in table.rows)] for i, lines in enumerate(heads[1:])]
    if table.prose:
        columns, available = columns[:-1], 0.6 * available
    letters = sum(max(map(_width, column), default=0) for column in columns)
    for size, scale, gap in FITS:
        spacing = [] if gap == GAP else [f"\\setlength{{\\tabcolsep}}{{{gap}pt}}"]
        if scale * letters + 2 * gap * (len(columns) - 1) <= available:
            return [*filter(None, [size]), *spacing]
    return ["% This table is too wide for the page: choose its columns with columns=[…].", size, *spacing]


def _width(text: str) -> float:
    """Return about the width of a text in pt at the normal size."""
    square = sum(east_asian_width(sign) in "WF" for sign in text)
    wide = sum(sign.isupper() or sign in "mw±×%" for sign in text)
    narrow = sum(sign in NARROW for sign in text)
    other = len(text) - square - wide - narrow
    return SQUARE_WIDTH * square + WIDE_WIDTH * wide + NARROW_WIDTH * narrow + WIDTH * other


def _head(lines: Sequence[str]) -> str:
    shown = [_name(line) for line in lines]
    if len(shown) < 2:
        return "".join(shown)
    return r"\begin{tabular}[b]{@{}r@{}}" + r" \\ ".join(shown) + r"\end{tabular}"


def _name(name: str) -> str:
    return GREEK_OPTION.sub(r"$\1 = \2$", _escape(name))


def _entry(entry: Entry, is_prose: bool) -> str:
    text = _text(entry)
    number = NUMBER.fullmatch(text)
    mean, marks, deviation = number.groups() if number else (_escape(text), "", None)
    raised = "".join(MARKS[mark] for mark in marks) + (r"\S" if _lacks_runs(entry) else "")
    raised = f"\\rlap{{$^{{{raised}}}$}}" if raised else ""  # without a width, so that numbers stay aligned
    if number is None:
        shown = f"\\textbf{{{mean}}}" if entry.best else mean
        return (r"\raggedright " if is_prose else "") + shown + raised
    mean = mean.replace(",", "{,}")
    mean = f"\\mathbf{{{mean}}}" if entry.best else mean
    return f"${mean} \\pm {deviation}${raised}" if deviation else f"${mean}${raised}"


def _text(entry: Entry) -> str:
    """Return the number of an entry with its deviation; the comments list the seeds and steps behind it."""
    deviation = [note for note in entry.notes if note.startswith("±")]
    return " ".join((one_line(entry.text), *deviation)) if entry.text else "–"


def _lacks_runs(entry: Entry) -> bool:
    return bool((entry.missing or entry.is_partial) and entry.text)


def _comment(text: str) -> str:
    return "% " + " ".join(text.splitlines())


def _escape(text: str) -> str:
    return "".join(ESCAPES.get(sign, sign if sign.isprintable() else "?") for sign in text)


def _is_latin(sign: str) -> bool:
    """Return whether every LaTeX prints a character, in its standard fonts."""
    return (sign.isascii() and sign.isprintable()) or (sign.isalpha() and sign < "\u0180") or sign in PRINTED
