"""Trains what the records lack, as listed in remaining.yaml: python results/remaining.py list|run|land [jobs=2]

* `list` prints what remains, in rows and hours.
* `run` trains it, with one thread and the lowest priority for each of `jobs` items at a time. It can be stopped at any
  time, by Ctrl-C or SIGTERM; started again, it continues the runs that were stopped.
* `land` makes the records of finished runs. `make results` fills in the pages from them.

Pages take no time from these records, which other programs that run meanwhile make longer; see benchmarks/steps.py.

An entry of the file has a table, its rows and columns (by default all of them), further options of `gyral train`, and
the hours of one core for an item, a row in a column. A run is done if it has a record, which `since` makes younger than
a date: one from before a change of the cell or the task does not count.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache
from itertools import product
from pathlib import Path
from signal import SIGINT, SIGTERM, signal
from threading import Event, RLock
from typing import Any, NamedTuple

import yaml

from gyral.config.tables import COLUMN, PROTOCOL
from gyral.reports.catalogue import DIRECTORY, load
from gyral.runs.records import read
from gyral.runs.run_record import RunRecord

FOLDER = Path(__file__).parent
GYRAL = [sys.executable, "-m", "gyral"]
LOGS = Path("outputs/remaining")
OUTSIDE_LISTS = re.compile(r",(?![^\[]*\])")  # commas between values, which may be lists


class Item(NamedTuple):
    """A row of a table in a column, with the options of `gyral train` and the hours of one core."""

    title: str
    sweep: str
    row: str
    options: dict[str, str]
    hours: float
    since: str = ""

    @property
    def words(self) -> list[str]:
        """The words of `gyral train`."""
        return [
            f"sweep={self.sweep}",
            f"experiment={self.row}",
            *(f"{key}={value}" for key, value in self.options.items()),
        ]

    def lacking(self) -> "Item | None":
        """Return the item with the seeds that a record lacks alone, or None if each run has one.

        An item whose learning rate is chosen by trials keeps all seeds, because the trials are not in the axes.
        """
        table = load(self.sweep)
        axes = table.axes | {key: OUTSIDE_LISTS.split(value) for key, value in self.options.items()}
        known = [record for record in records(self.row) if record.provenance.started >= self.since]

        def has(seed: str) -> bool:
            given = axes | {"seed": [seed]}
            words = ([f"{key}={value}" for value in values] for key, values in given.items() if key != "experiment")
            return all(any(all(map(record.has, run)) for record in known) for run in product(*words))

        seeds = [seed for seed in axes["seed"] if not has(seed)]
        if not seeds or not {*table.chosen} <= self.options.keys():
            return self if seeds else None
        hours = self.hours * len(seeds) / len(axes["seed"])
        return self._replace(options=self.options | {"seed": ",".join(seeds)}, hours=hours)


def items() -> Iterator[Item]:
    """Yield the items of the file in their order; an item of several entries belongs to the first."""
    found = set()
    for entry in yaml.safe_load((FOLDER / "remaining.yaml").read_text()):
        sweep, options = load(entry["sweep"]), {key: str(value) for key, value in entry.get("options", {}).items()}
        prefix = sweep.protocol.removesuffix(PROTOCOL)
        rows = [prefix + row for row in entry["rows"]] if "rows" in entry else sweep.axes["experiment"]
        columns = [prefix + name for name in entry["columns"]] if "columns" in entry else sweep.axes.get(COLUMN, [])
        for row, column in product(rows, [{COLUMN: column} for column in columns] or [{}]):
            since = str(entry.get("since", ""))
            item = Item(entry["title"], sweep.name, row, column | options, entry["hours"], since)
            if (words := tuple(item.words)) not in found:
                found.add(words)
                yield item


@cache
def records(row: str) -> list[RunRecord]:
    """Return the records of a row."""
    folder = FOLDER / "records" / row
    return read(folder)[0] if folder.is_dir() else []


running: set[subprocess.Popen[bytes]] = set()
stopped = Event()
starting = RLock()  # a run that starts is in `running` before `stop` looks there; a second signal may interrupt `stop`


def stop(*_: object) -> None:
    """Stop the runs, which leave a checkpoint, and begin no more items."""
    with starting:
        stopped.set()
        for process in [*running]:
            process.terminate()


def train(item: Item) -> None:
    """Train an item."""
    words = " ".join(item.words)
    log = LOGS / (words.replace(" ", "_").replace("/", "-") + ".log")
    command = [*GYRAL, "train", *item.words, "threads=1", "logger=csv"]
    with starting:
        if stopped.is_set():
            return
        print(f"{datetime.now():%H:%M} training {words}", flush=True)
        with log.open("a") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        running.add(process)
    code = process.wait()
    running.remove(process)
    ended = "done" if code == 0 else "stopped" if stopped.is_set() else f"failed, see {log}:"
    print(f"{datetime.now():%H:%M} {ended} {words}", flush=True)


def remaining() -> list[Item]:
    """Return the items that are not done, in their order."""
    return [lacking for item in items() if (lacking := item.lacking())]


def table() -> str:
    """Return a table in Markdown of what remains."""
    left = remaining()
    lines = ["| runs | items | hours |", "| --- | ---: | ---: |"]
    for title in dict.fromkeys(item.title for item in left):
        own = [item for item in left if item.title == title]
        lines.append(f"| {title} | {len(own)} | {sum(item.hours for item in own):.1f} |")
    return "\n".join([*lines, f"| all | {len(left)} | {sum(item.hours for item in left):.0f} |"])


def main(command: str = "list", jobs: str = "jobs=1") -> None:
    left = remaining()
    if command == "run":
        os.nice(19)
        os.environ["OMP_NUM_THREADS"] = "1"
        LOGS.mkdir(parents=True, exist_ok=True)
        signal(SIGTERM, stop)
        signal(SIGINT, stop)
        with ThreadPoolExecutor(int(jobs.removeprefix("jobs="))) as pool:
            list(pool.map(train, left))
    elif command == "land":
        statuses = [0]
        for sweep in dict.fromkeys(item.sweep for item in left):
            if (DIRECTORY / sweep).is_dir():
                words: list[Any] = [f"sweep={DIRECTORY / sweep}", "all=true", f"records={FOLDER / 'records'}"]
                statuses.append(subprocess.run([*GYRAL, "report", *words], stdout=subprocess.DEVNULL).returncode)
        sys.exit(max(statuses))
    elif command != "list":
        sys.exit(f"error: {command}: must be list, run or land")
    else:
        print(table())


if __name__ == "__main__":
    main(*sys.argv[1:])
