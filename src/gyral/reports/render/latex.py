"""A report as LaTeX tables. Imports no torch."""

from collections.abc import Sequence

from gyral.reports.render.text import labelled_runs, one_line, run_line
from gyral.reports.tables.cells import Table, TableCell
from gyral.reports.tables.sections import Section, describe_stopped

ESCAPES = {  # characters with a meaning in LaTeX, or without a glyph in its standard fonts
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "°": r"$^\circ$",
    "′": "$'$",
    "√": r"$\surd$",
    "∞": r"$\infty$",
    **{
        sign: f"$\\{name}$"
        for sign, name in (
            ("±", "pm"), ("×", "times"), ("≥", "geq"), ("≤", "leq"), ("→", "to"), ("α", "alpha"), ("β", "beta"),
            ("γ", "gamma"), ("η", "eta"), ("θ", "theta"), ("λ", "lambda"), ("μ", "mu"), ("σ", "sigma"), ("τ", "tau"),
        )
    },
}  # fmt: skip


def render(sections: Sequence[Section], notes: Sequence[str]) -> str:
    """Return a report as LaTeX tables, with the runs behind them in comments.

    Args:
        sections: its sections.
        notes: lines about runs that cannot be read.
    """
    lines = [r"% Needs \usepackage{booktabs}. A dagger marks numbers that lack some of their runs."]
    for section in sections:
        for table in section.tables:
            lines += ["", *_table(table, section.title)]
        lines += [f"% {text}" for text in (*section.footnotes, *map(describe_stopped, section.stopped))]
        lines += [f"% {text}" for text in (section.shortfall, *section.commands) if text]
        for label, record in labelled_runs(section):
            lines.append(f"% {label}: {run_line(record)}: {record.provenance.command}")
    return "\n".join((*lines, *(f"% {line}" for line in notes))) + "\n"


def _table(table: Table, title: str) -> list[str]:
    alignment = "l" + "r" * (len(table.heads) - 1)
    if table.prose:
        alignment = alignment[:-1] + "l"
    heads = " & ".join(_escape(" ".join(head.split("\n"))) for head in table.heads)
    body = []
    for label, cells in table.rows:
        body.append(f"    {' & '.join((_escape(one_line(label)), *map(_cell, cells)))} \\\\")
    caption = f"{title}: {table.caption}." if table.caption else f"{title}."
    return [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{_escape(caption)}}}",
        f"  \\begin{{tabular}}{{{alignment}}}",
        r"    \toprule",
        f"    {heads} \\\\",
        r"    \midrule",
        *body,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def _cell(cell: TableCell) -> str:
    # the comments list seeds and steps, but a deviation in the notes is part of the number
    deviation = [note for note in cell.notes if note.startswith("±")]
    text = _escape(" ".join((one_line(cell.text), *deviation)) if cell.text else "–")
    return text + (r"$^\dagger$" if cell.missing and cell.text else "")


def _escape(text: str) -> str:
    return "".join(ESCAPES.get(sign, sign) for sign in text)
