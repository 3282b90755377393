"""The progress of a sweep, shown until all of its runs end."""

import time
from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from gyral.core.console import Live, make_console
from gyral.reports.render import terminal
from gyral.reports.sweep_report import collect
from gyral.runs.run_record import RunRecord

INTERVAL = 2  # seconds between two updates


def watch(where: str, only: Sequence[str] = ()) -> None:
    """Show the progress of a sweep's runs and update it until all runs have ended or the user presses Ctrl-C.

    If the output is not a terminal, a line is printed after each change.

    Args:
        where, only: as in `gyral.reports.sweep_report.collect`.
    """
    console = make_console()
    known: dict[str, RunRecord] = {}
    last = ""
    with Live(console=console, auto_refresh=False, screen=console.is_terminal, vertical_overflow="ellipsis") as live:
        try:
            while True:
                sections, notes, _ = collect(where, known, only=only)
                records = [record for section in sections for record in section.records]
                known = {record.place: record for record in records}
                absent = sum(section.absent for section in sections)
                line = progress_line(records, absent, len(notes))
                if console.is_terminal:
                    tables = [terminal.terminal_table(table) for section in sections for table in section.tables]
                    live.update(Group(Text(f"{line}; press Ctrl-C to end this view"), *tables), refresh=True)
                elif line != last:
                    console.print(line, soft_wrap=True)
                last = line
                if not absent and all(record.results or record.failed for record in records):
                    return
                time.sleep(INTERVAL)
        except KeyboardInterrupt:
            return


def progress_line(records: list[RunRecord], absent: int, unreadable: int) -> str:
    """Return the number of runs in each state, and the steps of the running ones."""
    done, failed = sum(bool(r.results) for r in records), sum(r.failed for r in records if not r.results)
    running = [record for record in records if record.running and not record.results]
    unfinished = len(records) - done - failed - len(running)
    counts = {"done": done, "running": len(running), "unfinished": unfinished, "FAILED": failed}
    counts |= {"missing": absent, "unreadable": unreadable}
    steps = f"; running at step {', '.join(f'{record.steps:,}' for record in running)}" if running else ""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "done") + steps
