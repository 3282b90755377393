"""The report of a sweep or a directory: collects its runs, prints their tables, and saves figures and files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gyral.config.groups import generated_choices
from gyral.config.overrides import plain
from gyral.core.commands import program, typed
from gyral.core.console import make_console
from gyral.core.errors import OptionError, UserError
from gyral.plotting.sizes import SUFFIXES as FIGURE_SUFFIXES
from gyral.reports import catalogue, render
from gyral.reports.plots.options import Options
from gyral.reports.render import terminal
from gyral.reports.tables.columns import choose_columns, varied_numbers
from gyral.reports.tables.sections import Section, make_sections
from gyral.runs import records
from gyral.runs.record_files import SUFFIX, write_record
from gyral.runs.run_record import RunRecord

WANDB_PREFIX = "wandb:"


def collect(
    where: str,
    known: dict[str, RunRecord] | None = None,
    everything: bool = False,
    only: Sequence[str] = (),
    missing: bool = True,
    logs: bool = False,
    beside: Path | None = None,
) -> tuple[list[Section], list[str], Path | None]:
    """Collect the runs of a sweep.

    Args:
        where: the name of a table, a directory, or wandb:<entity>/<project>.
        known: runs that were read before, by place.
        everything: whether to show all runs of a directory; otherwise those of the sweep that was last started in it.
        only: show the runs with these options, see `RunRecord.has`.
        missing: whether to show rows, columns and seeds of a sweep that have no run.
        logs: whether curves are shown: runs whose log is damaged are then left out, with a line.
        beside: a directory with further runs or records.

    Returns:
        The sections of the report, a line for each run that cannot be read, and the directory of the runs, None for
        runs from Weights & Biases.

    Raises:
        OptionError: The place does not exist, or is not a table and contains no run, or has none with these options.
    """
    directory, others, plan = None, 0, catalogue.Plan()
    if where.startswith(WANDB_PREFIX):
        from gyral.reports import wandb_runs

        found, notes = wandb_runs.read(where.removeprefix(WANDB_PREFIX))
    else:
        directory = catalogue.find(where)
        found, notes = records.read(directory, known)
        plan = catalogue.planned(directory)
        if not everything:
            notes += [f"{plan.fault}; all runs are shown"] if plan.fault else []
            jobs = {*plan.jobs}
            mine = [record for record in found if catalogue.job_of(record.overrides.values()) in jobs]
            others = len(found) - len(mine) if mine else 0
            found = mine or found
    if beside is not None:
        further, faults = records.read(existing(beside))
        found, notes = [*found, *further], [*notes, *faults]
    if logs:
        found = [record for record in found if _has_log(record, notes)]
    is_named = directory == catalogue.DIRECTORY / where and where in generated_choices("sweep")
    if not found and (notes or not is_named):  # a table that has not run yet shows what is published
        several = f"{len(notes)} cannot be read, the first is " if len(notes) > 1 else ""
        broken = f"; {several}{notes[0]}" if notes else ""
        raise OptionError("sweep", where, f"contains no run{broken}")
    found = [record for record in found if all(map(record.has, only))]
    if not found and only:
        raise OptionError("only", f"[{','.join(only)}]", f"matches no run in {where}")
    name = where if is_named else None
    is_archive = bool(found) and all(record.place.endswith(SUFFIX) for record in found)  # nothing can be resumed
    home = None if is_archive else directory
    narrowed = any(option.partition("=")[0] in ("experiment", "model") for option in only)
    if is_archive or not name or everything:
        plan = catalogue.Plan() if is_archive else replace(plan, rows=None)
    sections = make_sections(found, home, name, plan, missing=missing, narrowed=narrowed)
    if others:
        counted = "1 run of another sweep is" if others == 1 else f"{others} runs of other sweeps are"
        sections[-1].footnotes.append(f"{counted} in {directory}, too; all=true shows all runs.")
    return sections, notes, directory


def existing(directory: Path) -> Path:
    """Return a directory; raise `OptionError` if it does not exist."""
    if not directory.is_dir():
        raise OptionError("beside", directory, "must be a directory that contains runs or records")
    return directory


def _has_log(record: RunRecord, notes: list[str]) -> bool:
    """Return whether what a run has logged can be read; if not, a line about it is added to the notes."""
    try:
        return record.log is not None
    except UserError as error:
        notes.append(f"{record.place}: cannot be read: {str(error).removeprefix(f'{record.place}/')}")
        return False


def print_comparison(name: str | None, directory: Path) -> None:
    """Print the tables of a sweep that has ended, without its missing runs, and the commands that show and save it.

    Args:
        name: the name of its table, or None.
        directory: its directory.
    """
    is_named = name is not None and directory == catalogue.DIRECTORY / name
    where = str(name) if is_named else str(directory)
    try:
        sections, _, _ = collect(where)
    except OptionError:
        return
    found = [record for section in sections for record in section.records]
    if not found:  # no job has written a run; the sweep lists the reasons
        return
    console = make_console()
    terminal.print_lines(console, [""])
    for section in sections:
        terminal.print_tables(console, section.tables)
        terminal.print_lines(console, section.footnotes)
    show = [*program("report"), plain(f"sweep={where}")]
    stem = where if is_named else "comparison"
    save = typed([*show, f"save=[{stem}.pdf,{stem}.tex]"])
    lines = [f"To show this again: {typed(show)}", f"To save figure and LaTeX table: {save}"]
    if varied := varied_numbers(found):
        chosen = [f"x={varied[0]}"] if len(varied) > 1 else []
        over = typed([*show, "plot=columns", *chosen, "save=columns.pdf"])
        lines.append(f"To draw the results over {varied[0]}: {over}")
    terminal.print_lines(console, lines)


def report_sweep(
    where: str,
    saved: Sequence[Path] = (),
    with_runs: bool = False,
    options: Options | None = None,
    columns: Sequence[str] = (),
    width: str | None = None,
    archive: Path | None = None,
    **which: Any,
) -> None:
    """Print the tables of a sweep, draw its figures, and write the report to files.

    Args:
        where: see `collect`.
        saved: files to write, each with one of `render.SUFFIXES` or `plotting.sizes.SUFFIXES`.
        with_runs: whether to list the runs behind the numbers.
        options: what the saved figures show, None for the defaults.
        columns: heads of the columns that the tables have, none for all of them.
        width: "column" or "page", the width of tables in LaTeX; None for a page with one column.
        archive: a folder in which each finished run leaves a record file.
        **which: the runs that it shows, see `collect`.

    Raises:
        OptionError: The place does not exist or contains no run, or not what the options ask for.
        OSError: A file cannot be written.
    """
    figures = [path for path in saved if path.suffix in FIGURE_SUFFIXES]
    logs = bool(figures or archive) or any(path.suffix == ".html" for path in saved)
    sections, notes, _ = collect(where, logs=logs, **which)
    shown = choose_columns(sections, columns) if columns else sections
    console = make_console()
    for section in shown:
        terminal.print_section(console, section, with_runs)
    terminal.print_lines(console, notes)
    for path in sorted(saved, key=lambda path: path not in figures):  # a wrong option of figures leaves no file
        if path in figures:
            from gyral.reports.plots.drawing import plot

            terminal.print_lines(console, [f"Wrote {path}: {plot(path, where, sections, options or Options())}"])
        else:
            render.write(path, where, shown, notes, with_runs, width)
            terminal.print_lines(console, [f"Wrote {path}"])
    if archive is not None:
        ended = {r.place: r for section in sections for r in section.records if r.ended}
        written = {write_record(record, archive) for place, record in ended.items() if not place.endswith(SUFFIX)}
        line = f"Wrote the records of {len(written)} finished runs to {archive}"
        terminal.print_lines(console, [line])
