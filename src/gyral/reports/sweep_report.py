"""The report of a sweep or a directory: collects its runs, prints their tables, and saves figures and files."""

from collections.abc import Sequence
from pathlib import Path

from gyral.core.errors import OptionError
from gyral.reports import catalogue
from gyral.reports.render import files, terminal
from gyral.reports.tables.sections import Section, make_sections
from gyral.runs import records
from gyral.runs.records import RunRecord

WANDB_PREFIX = "wandb:"


def collect(where: str, known: dict[str, RunRecord] | None = None) -> tuple[list[Section], list[str], Path | None]:
    """Collect the runs of a sweep.

    Args:
        where: a name in conf/sweep, a directory, or wandb:<entity>/<project>.
        known: runs that were read before, by place.

    Returns:
        The sections of the report, a line for each run that cannot be read, and the directory of the runs, None for
        runs from Weights & Biases.

    Raises:
        OptionError: The place does not exist or contains no run.
    """
    directory = None
    if where.startswith(WANDB_PREFIX):
        from gyral.reports import wandb_runs

        found, notes = wandb_runs.read(where.removeprefix(WANDB_PREFIX))
    else:
        directory = catalogue.find(where)
        found, notes = records.read(directory, known)
    if not found:
        broken = f"; {len(notes)} cannot be read, the first is {notes[0]}" if notes else ""
        raise OptionError("sweep", where, f"contains no run{broken}")
    only = where if where in {sweep.name for sweep in catalogue.named()} else None
    return make_sections(found, directory, only), notes, directory


def report_sweep(where: str, saved: Sequence[Path] = (), with_runs: bool = False) -> None:
    """Print the tables of a sweep, draw its figures, and write the report to files.

    Args:
        where: a name in conf/sweep, a directory, or wandb:<entity>/<project>.
        saved: files to write, each with one of `render.files.SUFFIXES`.
        with_runs: whether to list the runs behind the numbers.

    Raises:
        OptionError: The place does not exist or contains no run.
        OSError: A file cannot be written.
    """
    sections, notes, directory = collect(where)
    console = terminal.make_console()
    for section in sections:
        terminal.print_section(console, section, with_runs)
        if section.sweep and section.sweep.layout == "curves" and directory:
            terminal.print_lines(console, [_draw(section, directory)])
    terminal.print_lines(console, notes)
    for path in saved:
        files.write(path, where, sections, notes, with_runs)
        terminal.print_lines(console, [f"Wrote {path}"])


def _draw(section: Section, directory: Path) -> str:
    from gyral.reports.figures.loss_curves import draw_loss_curves

    try:
        return f"Drew {draw_loss_curves(section, directory)}"
    except OSError as error:
        return f"Cannot draw {error.filename}: {error.strerror}"
