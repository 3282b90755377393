"""Fills in the tables and figures of the pages from the records of finished runs: python docs/results.py

README.md, benchmarks/README.md and all pages of docs/ have figures from benchmarks/records and results/records. They
are written into the files, which can be read without the built site. See `figures` and `filled` in docs/speeds.py.

A page of docs/results or docs/applications has comments of the form
`<!-- gyral report sweep=results/records/<folder> -->`, optionally with `only=[…]`,
`columns=[…]`, `missing=false` and `runs=false`, and the report of the records in this folder between the comment and
`<!-- end -->`. With the name of a table in place of the folder, or the folder of a table that has no records yet, it is
the report of the table without runs. A table has the time of a training step of each row, if benchmarks/records has it.
The comment `<!-- claims <name> -->` is followed by the table of results/claims/<name>.yaml, and
`<!-- probe <name> sweep=<sweep> -->` by a table of a probe's results, which are beside the records of the sweep's runs.
The function with the name of the probe in `tables.py` in the page's folder makes its lines.
"""

import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import abilities
import language
import measured
import runs
import speeds
import tutorials
import uses
from claims import claims_table, read_claims
from matplotlib.figure import Figure

from gyral.config.groups import generated_choices
from gyral.config.tables import load_table
from gyral.core.errors import UserError
from gyral.core.escaping import escape_markdown
from gyral.plotting.style import save, style
from gyral.reports.catalogue import load
from gyral.reports.plots.drawing import DRAW, DRAW_FRAMES, draw
from gyral.reports.plots.options import Options
from gyral.reports.render import markdown
from gyral.reports.rows import rows_of
from gyral.reports.statistics import mean_text
from gyral.reports.sweep_report import collect
from gyral.reports.tables.columns import choose_columns, read_names
from gyral.reports.tables.sections import Section, make_sections
from gyral.reports.tables.table import Column, Entry, Table
from gyral.runs.record_files import read_probe
from gyral.runs.run_record import RunRecord

ROOT = Path(__file__).parents[1]
PAGES = (Path("docs/results"), Path("docs/applications"))
MEASURED = (Path("README.md"), Path("benchmarks/README.md"))
ASSETS = Path("docs/assets")
PLOTS = {  # by their files in ASSETS: the folder of records, and the options of `gyral report`
    "atlas.png": ("atlas_small", (), Options("heatmap")),
    "atlas_lengths.png": ("atlas_small", (), Options("lengths")),
    "robustness_copy.png": ("robustness/copy", (), Options("columns", x="", log="x")),
    "robustness_recall.png": ("robustness/recall", (), Options("columns", x="", log="x")),
    "copying_delay200.png": ("rum_paper/fig4", ("task.delay=200",), Options(y="val/accuracy")),
    "copying_losses200.png": ("rum_paper/fig4", ("task.delay=200",), Options("losses", width="page")),
}
REPORT = re.compile(
    r"(<!-- gyral report sweep=(\S+)(?: only=(\S+))?(?: columns=(\[.+?\]))?( missing=false)?( runs=false)? -->\n)"
    r".*?(<!-- end -->)",
    re.DOTALL,
)
CLAIMS = re.compile(r"(<!-- claims (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PROBE = re.compile(r"(<!-- probe (\w+) sweep=(\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
TITLE = re.compile(r"^## .*\n\n", re.MULTILINE)


def filled(text: str, folder: Path) -> str:
    """Return the text of a page in a folder with its tables made from the records."""
    text = REPORT.sub(
        lambda match: (
            f"{match[1]}\n{report(*match.group(2, 3, 4), missing=not match[5], with_runs=not match[6])}\n{match[7]}"
        ),
        text,
    )
    text = PROBE.sub(
        lambda match: f"{match[1]}\n{probe_table(match[2], match[3], folder / 'tables.py')}\n\n{match[4]}", text
    )
    return CLAIMS.sub(lambda match: f"{match[1]}\n{claims(match[2])}\n\n{match[3]}", text)


faults: list[str] = []  # lines about files that cannot be read


def records() -> list[RunRecord]:
    """Return all records that can be read."""
    return measured.all_records(Path.cwd())


@cache
def known() -> dict[str, RunRecord]:
    """Return these records by place, so that no report reads a file again."""
    return {record.place: record for record in records()}


def report(where: str, only: str | None, columns: str | None, missing: bool, with_runs: bool) -> str:
    """Return the report of the records in a folder, or of a table without runs, as Markdown."""
    table = where if where in generated_choices("sweep") else None if Path(where).is_dir() else table_of(where)
    if table is not None:
        sections, notes = make_sections([], None, table), []
    else:
        sections, notes, _ = collect(where, known(), everything=True, only=read_names("only", only), missing=missing)
    faults.extend(notes)
    shown = choose_columns(sections, read_names("columns", columns)) if columns else sections
    parts = [part for section in shown for part in section_parts(section, where, only, with_runs)]
    parts += [f"- {escape_markdown(line)}" for line in notes]
    text = "\n\n".join(parts) + "\n"
    return TITLE.sub("", text) if only else text  # the page has a heading for each part


def table_of(folder: str) -> str | None:
    """Return the table whose records a folder would have."""
    tables = generated_choices("sweep").items()
    return next((name for name, file in tables if folder == f"results/records/{load_table(file).experiment}"), None)


def section_parts(section: Section, where: str, only: str | None, with_runs: bool) -> Iterator[str]:
    """Yield the tables of a section, its runs, and a sentence about the runs that were not started.

    Columns without any number are left out, and so are tables without any.
    """
    absent = section.absent
    tables = [without_empty_columns(table) for table in with_cost(section)]
    tables = [replace(table, caption=capitalized(table.caption)) for table in tables if table.columns]
    footnotes = [f"{line}." if line[0] in "°†‡*" else line for line in section.footnotes]
    shown = replace(section, tables=tables, footnotes=footnotes, absent=0, commands=[])
    if any(record.results for record in section.records):
        yield markdown.render([shown], [], with_runs=False).rstrip("\n")
        if with_runs:
            yield runs.folded_runs(section)
        if absent:
            chosen = f' "only={only}"' if only else ""
            counted = "1 run of this table has" if absent == 1 else f"{absent:,} runs of this table have"
            yield f"{counted} not been started; `gyral report sweep={where}{chosen}` prints the commands."
        return
    shown = replace(shown, tables=[replace(table, caption="") for table in shown.tables])
    yield markdown.render([shown], [], with_runs=False).rstrip("\n")
    axes = "" if shown.tables else f"{_listed('row', [row.label for row in section.rows])}{_columns(section)}"
    yield f"`{section.commands[0]}` trains the rows in {absent:,} runs.{escape_markdown(axes)}"


def with_cost(section: Section) -> list[Table]:
    """Return the tables of a section, the first one with the time of a training step where it was measured."""
    ratios = speeds.step_ratios(section.sweep.name) if section.sweep else {}
    if section.sweep is None or not ratios:
        return section.tables
    names = {row.label: row.experiment.rpartition("/")[2] for row in section.rows}
    first, *others = section.tables
    times = [Entry(speeds.number(ratios.get(names.get(name, "")), ".2f")) for name in first.names]
    return [replace(first, columns=[*first.columns, Column("step ×", times)]), *others]


def _columns(section: Section) -> str:
    heads = dict.fromkeys(column.head for table in section.tables for column in table.columns)
    return _listed("column", [head for head in heads if head not in ("measured", "paper", "parameters")])


def _listed(name: str, texts: list[str]) -> str:
    return f" Its {name}s are {', '.join(texts)}." if texts else ""


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def without_empty_columns(table: Table) -> Table:
    """Return a table without the columns and rows that have no number.

    A column of published values gets the head of the column beside it that is left out.
    """
    kept: list[Column] = []
    before = replace(table.columns[0], head="")  # the column that has been left out just before
    is_measured = any(entry.values for column in table.columns for entry in column.entries)
    for column in table.columns:
        if all(entry.line == "–" for entry in column.entries):
            before = column
            continue
        if column.head == "paper" and before.head not in ("", "measured"):
            column = replace(column, head=f"{before.head} (paper)" if is_measured else before.head)
        kept.append(column)
        before = replace(column, head="")
    return replace(table, columns=kept).without_empty_rows()


def claims(name: str) -> str:
    """Return the table of the claims in a file of results/claims."""
    try:
        return claims_table(read_claims(Path("results/claims") / f"{name}.yaml", records()))
    except UserError as error:
        return named(str(error))


def named(fault: str) -> str:
    """Return the line of a page about a file that cannot be read."""
    faults.append(fault)
    return f"- {escape_markdown(fault)}"


class Runs(list[dict[str, float]]):
    """The numbers of a probe for each seed of a row."""

    def mean(self, name: str) -> str:
        """Return a number's mean over the seeds and its standard deviation as text."""
        return mean_text([numbers[name] for numbers in self], 1)


def probe_table(probe: str, sweep: str, file: Path) -> str:
    """Return the results of a probe for all rows of a sweep as a table in Markdown, made by a file of tables."""
    found: dict[str, Runs] = {}
    unreadable: list[str] = []
    for row in rows_of(load(sweep), records()):
        numbers = Runs()
        for record in row.records:
            try:
                numbers += filter(None, [read_probe(record, probe)])
            except UserError as error:
                unreadable.append(named(str(error)))
        if numbers:
            sizes = "-".join(map(str, row.records[0].config["model"]["layer_sizes"]))
            found[f"{row.name} {sizes}"] = numbers
    lines = runpy.run_path(str(file))[probe](found)
    lines.insert(1, ["---", *["---:"] * (len(lines[0]) - 1)])
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), *(["", *unreadable] if unreadable else [])])


def figures(folder: Path) -> dict[str, Callable[..., str]]:
    """Return what makes the figures of the comments in a page of a folder, by the first word of a comment.

    `<!-- result <experiment> <place> -->` is a result of an experiment, and `<!-- page <experiment> -->` the link to
    the page that shows it. `<!-- uses -->` is the table of docs/uses.py, `<!-- remaining -->` that of
    results/remaining.py, and `<!-- abilities -->` and `<!-- language -->` are the figures of docs/abilities.py and
    docs/language.py.
    """
    start = os.path.relpath(folder, "docs")
    own = {"uses": uses.table, "result": measured.value, "remaining": remaining_runs}
    own |= {"abilities": abilities.picture, "language": language.picture}
    return {**speeds.FIGURES, **own, "page": partial(measured.link, start=start)}


def remaining_runs() -> str:
    """Return a table of the runs that the records lack."""
    table: str = runpy.run_path("results/remaining.py")["table"]()
    return table


def pictures() -> dict[Path, bytes]:
    """Return the figures that pages show, by their files: those of tutorials, and those of records that are outdated.

    Notebooks contain figures as text alone. A figure of records has a digest of its numbers and of the module that
    draws it, because other versions of fonts and of Matplotlib give other bytes.
    """
    pages = "".join(page.read_text(encoding="utf-8") for page in Path("docs").rglob("*.md"))
    found = {
        ASSETS / Path(name).name: content
        for *_, found in tutorials.rendered()
        for name, content in found.items()
        if f"assets/{Path(name).name}" in pages
    }
    for name, numbers, module, drawing in of_records(pages):
        path = ASSETS / name
        digest = sha256(repr(numbers).encode() + Path(str(module.__file__)).read_bytes()).hexdigest()
        if not (path.is_file() and digest.encode() in path.read_bytes()):
            with style(), TemporaryDirectory() as folder:
                save(drawing(), Path(folder, name), path.stem, digest)
                found[path] = Path(folder, name).read_bytes()
    return found


def of_records(pages: str) -> Iterator[tuple[str, Any, ModuleType, Callable[[], Figure]]]:
    """Yield the name of each figure of records in pages, its numbers, the module that draws it, and its drawing."""
    for module, numbers in ((abilities, abilities.columns()), (language, language.points())):
        if f"<!-- {module.__name__} -->" in pages and module.is_drawn():
            yield Path(module.FILE).name, numbers, module, module.draw
    for name, (folder, only, options) in PLOTS.items():
        if f"assets/{name})" not in pages:
            continue
        frames, _, _ = collect(f"results/records/{folder}", known(), everything=True, only=only, missing=False)
        lines = [(line.row.name, *line[2:5], line.run.diverged) for frame in frames for line in frame.lines]
        module = sys.modules[(DRAW | DRAW_FRAMES)[options.plot].__module__]
        yield name, (lines, options), module, partial(draw, frames, options)


def main() -> int:
    """Write the pages; with the argument --check only say whether they are up to date."""
    os.chdir(ROOT)
    contents = pictures()
    for path in (*filter(Path.is_file, MEASURED), *sorted(Path("docs").rglob("*.md"))):
        text = speeds.filled(path.read_text(encoding="utf-8"), figures(path.parent))
        contents[path] = (filled(text, path.parent) if path.is_relative_to("docs") else text).encode()
    outdated = [path for path, new in contents.items() if not path.is_file() or path.read_bytes() != new]
    for path in outdated:
        if "--check" in sys.argv:
            print(f"{path}: is not up to date; run `make results`")
        else:
            path.write_bytes(contents[path])
            print(f"Wrote {path}")
    for fault in dict.fromkeys(faults):
        print(fault, file=sys.stderr)
    return int(bool(faults) or (bool(outdated) and "--check" in sys.argv))


if __name__ == "__main__":
    sys.exit(main())
