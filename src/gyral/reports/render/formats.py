"""A report's tables for the terminal, Markdown, LaTeX and as CSV. Imports no torch."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from gyral.reports.catalogue import Job
from gyral.reports.tables import Cell, Section, Table, why

UNBOUNDED = 1000  # characters a line where there is no terminal to fit into
NARROWEST = 13  # characters that a column of numbers may be asked to keep
LATEX = {  # signs that LaTeX reads otherwise, or that its standard fonts lack
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
CSV_COLUMNS = (
    *("report", "row", "column", "mean", "deviation", "runs", "paper"),
    *("seed", "value", "state", "reason", "steps", "place", "commit", "uncommitted_changes", "command", "overrides"),
    *("wandb_id", "started", "host"),
)


def console_for(file: Any = None, width: int | None = None) -> Console:
    """Return a console that takes no sign for markup, as wide as needed where it is no terminal."""
    console = Console(file=file, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = width or UNBOUNDED
    return console


def print_report(console: Console, sections: Sequence[Section], told: Sequence[str], with_runs: bool) -> None:
    """Print a report: tables, what is missing and how to come by it, and what could not be read."""
    for section in sections:
        for table in section.tables:
            console.print(terminal_table(table))
        for line in section.footnotes:
            console.print(line, soft_wrap=True)
        if with_runs:
            console.print("Runs", style="bold")
            for label, job in _labelled(section):
                told_of_run = filter(None, (f"{label}: {run_line(job)}", job.provenance.command))
                console.print("\n    ".join(told_of_run), soft_wrap=True)
        for job in section.stopped:
            console.print(why(job), soft_wrap=True)
        if section.shortfall:
            console.print(" To go on: ".join((section.shortfall, *section.commands[:1])), soft_wrap=True)
            for command in section.commands[1:]:
                console.print(command, soft_wrap=True)
    for line in told:
        console.print(line, soft_wrap=True)


def _labelled(section: Section) -> Iterator[tuple[str, Job]]:
    for row, label in zip(section.rows, section.labels, strict=True):
        for job in row.jobs:
            yield one_line(label), job


def one_line(label: str) -> str:
    """Return the lines of a row's name or of a cell as one."""
    return ", ".join(label.split("\n"))


def run_line(job: Job) -> str:
    """Return where a run comes from, in one line."""
    known = job.provenance
    parts = (f"seed {job.seed}", job.state, job.place, f"commit {known.code}", f"W&B {known.identity or 'unknown'}")
    return ", ".join((*parts, known.started)) if known.started else ", ".join(parts)


def terminal_table(table: Table) -> RichTable:
    """Return a table as rich prints it."""
    shown = RichTable(
        title=table.title or None,
        caption=table.caption or None,
        box=box.HORIZONTALS,
        show_lines=bool(table.title),
        padding=(0, 1, 0, 0),
    )
    for index, head in enumerate(table.heads):
        if index == 0 and table.title:
            shown.add_column(head, min_width=12)
        elif table.prose and index == len(table.heads) - 1:
            shown.add_column(head)
        else:
            column = [cells[index - 1] for _, cells in table.rows] if index else []
            widest = max(
                (len(line) for cell in column for line in (*cell.text.split("\n"), *cell.notes[:1])), default=0
            )
            shown.add_column(head, justify="right", min_width=max(5, min(widest, NARROWEST)))
    for label, cells in table.rows:
        shown.add_row(label, *("\n".join(cell.lines) for cell in cells))
    return shown


def markdown(sections: Sequence[Section], told: Sequence[str], with_runs: bool) -> str:
    """Return a report in Markdown."""
    parts = []
    for section in sections:
        parts.append(f"## {_markdown_text(section.title)}")
        for table in section.tables:
            lines = [[one_line(label), *map(_in_a_line, cells)] for label, cells in table.rows]
            heads = [" ".join(head.split("\n")) for head in table.heads]
            parts.append(_markdown_table(heads, lines, table.prose))
        parts += [_markdown_text(f"{section.tables[0].caption}."), *map(_markdown_text, section.footnotes)]
        if with_runs:
            rows = [
                [label, job.seed, job.state, job.place, job.provenance.code, job.provenance.identity, f"`{command}`"]
                for label, job in _labelled(section)
                if (command := job.provenance.command or "unknown")
            ]
            heads = ["row", "seed", "state", "run directory", "commit", "W&B id", "command"]
            parts += ["### Runs", _markdown_table(heads, rows, prose=True)]
        if section.shortfall:
            parts.append(section.shortfall)
        if section.stopped:
            parts.append("\n".join(f"- {_markdown_text(why(job))}" for job in section.stopped))
        if section.commands:
            parts.append("To go on:\n\n```bash\n" + "\n".join(section.commands) + "\n```")
    if told:
        parts.append("\n".join(f"- {_markdown_text(line)}" for line in told))
    return "\n\n".join(parts) + "\n"


def _in_a_line(cell: Cell) -> str:
    beside = "; ".join((*cell.notes, *cell.lacks))
    text = one_line(cell.text)
    return f"{text} ({beside})" if text and beside else text or beside


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", text)


def _markdown_table(heads: list[str], rows: list[list[str]], prose: bool) -> str:
    def line(cells: list[str]) -> str:
        # code keeps its signs, but for the bar that would end the cell
        escaped = [cell.replace("|", r"\|") if cell.startswith("`") else _markdown_text(cell) for cell in cells]
        return f"| {' | '.join(escaped)} |"

    rule = ["---", *["---:"] * (len(heads) - 1)]
    if prose:
        rule[-1] = "---"
    return "\n".join((line(heads), f"| {' | '.join(rule)} |", *map(line, rows)))


def latex(sections: Sequence[Section], told: Sequence[str]) -> str:
    """Return a report as tables in LaTeX, with the runs behind them as comments."""
    lines = [r"% Needs \usepackage{booktabs}. A dagger marks numbers of fewer runs than there should be."]
    for section in sections:
        for table in section.tables:
            lines += ["", *_latex_table(table, section.title)]
        lines += [f"% {text}" for text in (*section.footnotes, *map(why, section.stopped))]
        lines += [f"% {text}" for text in (section.shortfall, *section.commands) if text]
        for label, job in _labelled(section):
            lines.append(f"% {label}: {run_line(job)}: {job.provenance.command}")
    return "\n".join((*lines, *(f"% {line}" for line in told))) + "\n"


def _latex_table(table: Table, title: str) -> list[str]:
    alignment = "l" + "r" * (len(table.heads) - 1)
    if table.prose:
        alignment = alignment[:-1] + "l"
    heads = " & ".join(_latex_text(" ".join(head.split("\n"))) for head in table.heads)
    body = []
    for label, cells in table.rows:
        body.append(f"    {' & '.join((_latex_text(one_line(label)), *map(_latex_cell, cells)))} \\\\")
    caption = f"{title}: {table.caption}." if table.caption else f"{title}."
    return [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{_latex_text(caption)}}}",
        f"  \\begin{{tabular}}{{{alignment}}}",
        r"    \toprule",
        f"    {heads} \\\\",
        r"    \midrule",
        *body,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def _latex_text(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in text)


def _latex_cell(cell: Cell) -> str:
    # seeds and steps stand in the comments; a deviation on a line of its own belongs to the number
    spread = [note for note in cell.notes if note.startswith("±")]
    text = _latex_text(" ".join((one_line(cell.text), *spread)) if cell.text else "–")
    return text + (r"$^\dagger$" if cell.lacks and cell.text else "")


def as_csv(sections: Sequence[Section]) -> str:
    """Return every number of a report with a line for each run behind it, one without run where there is none."""
    file = io.StringIO()
    writer = csv.DictWriter(file, CSV_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for section in sections:
        for table in section.tables:
            for label, cells in table.rows:
                for head, cell in zip(table.heads[1:], cells, strict=True):
                    is_empty = cell.text in ("", "–") and cell.paper is None
                    if not cell.jobs and (is_empty or head == "paper"):  # which stands beside the number it is for
                        continue
                    writer.writerows(
                        {"report": section.title, "row": one_line(label), "column": " ".join(head.split("\n")), **told}
                        for told in _csv_lines(cell)
                    )
    return file.getvalue()


def _csv_lines(cell: Cell) -> Iterator[dict[str, Any]]:
    of_cell = {
        "mean": "" if cell.mean is None else cell.mean,
        "deviation": "" if cell.deviation is None else cell.deviation,
        "runs": len(cell.values),
        "paper": "" if cell.paper is None else cell.paper,
    }
    if not cell.jobs:
        yield of_cell | {"state": "" if cell.mean is not None else _in_a_line(cell)}
    for job, value in cell.jobs:
        known = job.provenance
        yield of_cell | {
            "seed": job.seed,
            "value": "" if value is None else value,
            "state": job.state,
            "reason": job.reason or "",
            "steps": job.steps,
            "place": job.place,
            "commit": known.commit,
            "uncommitted_changes": str(known.changed).lower(),
            "command": known.command,
            "overrides": " ".join(job.overrides.values()),
            "wandb_id": known.identity,
            "started": known.started,
            "host": known.host,
        }
