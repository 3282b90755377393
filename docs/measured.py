"""What this project measured for each row of a table, from results/records, and the page that shows it."""

import os
import re
from collections.abc import Iterator
from functools import cache
from math import nan
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from gyral.reports.catalogue import Plan, Sweep
from gyral.reports.frame import Frame, read_frames
from gyral.reports.statistics import mean_text
from gyral.runs.names import describe_option
from gyral.runs.records import read
from gyral.runs.run_record import RunRecord, select

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(r"<!-- gyral report sweep=results/records/(\S+)")
MOST = 6  # columns that are listed one by one


class Measured(NamedTuple):
    """The results of a row in a column of its table.

    Attributes:
        experiment: the row, as its name on the command line.
        column: the column as it is printed, such as "task.delay = 500"; empty if there is none.
        settings: the settings in which the runs differ from the table's.
        text: mean ± standard deviation over the seeds, or how many of them solve the task.
        mean: the mean.
        validation: the mean of the monitored metric, negative if a smaller one is better.
        is_best: whether no other row of the table has a better mean in this column, to the digits that are printed.
            Where columns are learning rates, a row has the mean at the one that is the best in validation.
    """

    experiment: str
    column: str
    settings: str
    text: str
    mean: float
    validation: float
    is_best: bool = False

    @property
    def place(self) -> str:
        """The column and the settings, such as "length=30, learning rate=0.003"."""
        return ", ".join(filter(None, (self.column, self.settings.replace(" = ", "="))))


@cache
def all_records(root: Path) -> list[RunRecord]:
    """Return all records of a checkout that can be read; their places are relative to the current directory."""
    return read(Path(os.path.relpath(root / "results" / "records")))[0]


@cache
def records() -> list[RunRecord]:
    """Return all records but those that were transcribed from older tables."""
    return [record for record in all_records(ROOT) if not record.transcribed]


@cache
def cells() -> dict[str, str]:
    """Return the class of the cell of each experiment, as its configuration names it, without models of other parts."""
    found = {}
    for record in records():
        cell = record.options.get("model.cell._target_")
        if record.experiment and cell:
            found[record.experiment] = str(cell)
    return dict(sorted(found.items()))


@cache
def all_measured() -> list[Measured]:
    """Return the results of all rows of all tables, without the transcribed ones."""
    found: list[Measured] = []
    for frame in read_frames(records(), Plan()):
        if frame.sweep is None:
            continue
        sweep, own = frame.sweep, list(_of_frame(frame, frame.sweep))
        for one in own:
            alike = [other for other in own if other.settings == one.settings]
            if (sweep.column or "").startswith("optimizer."):
                by_row = {other.experiment: other for other in sorted(alike, key=lambda other: other.validation)}
                alike = [*by_row.values()]
            else:
                alike = [other for other in alike if other.column == one.column]
            same = [other.mean for other in alike]
            best = max(same) if sweep.main.higher_is_better else min(same)
            digits = sweep.main.digits
            is_alone = len({other.experiment for other in alike}) == 1
            is_best = one in alike and not is_alone and round(one.mean, digits) == round(best, digits)
            found.append(one._replace(is_best=is_best))
    return found


def _of_frame(frame: Frame, sweep: Sweep) -> Iterator[Measured]:
    for row in frame.rows:
        if not sweep.trains(row.experiment):
            continue
        _, *overrides = row.label.split("\n")
        words = [override.lstrip("+~").partition("=") for override in overrides]
        settings = ", ".join(describe_option(key, value) for key, _, value in words)
        for column in frame.columns:
            runs = frame.of(frame.in_column(row, column), f"test/{sweep.measure}", column)
            values = [value for _, value in runs if value is not None]
            ended = sum(record.ended for record, _ in runs)
            if not values:
                continue
            title = sweep.head(column) if column else ""
            text = mean_text(values, sweep.main.digits)
            if sweep.layout == "solved":
                text = f"{sweep.solved_count(values)} of {ended} seeds"
            scored = [record for record, value in runs if value is not None]
            yield Measured(row.experiment, title, settings, text, fmean(values), validation(scored))


def validation(runs: list[RunRecord]) -> float:
    """Return the mean of the monitored metric of runs, negative if a smaller one is better, nan without one."""
    sign = -1 if select(runs[0].config, "task.mode") == "min" else 1
    return sign * fmean(run.metrics.get("monitor", nan) for run in runs)


@cache
def page_of(experiment: str) -> str | None:
    """Return the page, relative to docs/, that shows the records of an experiment."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for folder in SHOWN.findall(page.read_text(encoding="utf-8")):
            if f"{experiment}/".startswith(f"{folder}/"):
                return page.relative_to(ROOT / "docs").as_posix()
    return None


def title_of(page: str) -> str:
    """Return the title of a page."""
    found = re.search(r"^# (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, page
    return found[1]


def link(experiment: str, start: str) -> str:
    """Return a link to the page that shows an experiment, from a page in the folder `start`; empty without a page."""
    page = page_of(experiment)
    return f"[{title_of(page)}]({os.path.relpath(page, start)})" if page else ""


def summary(experiment: str) -> str:
    """Return the results of an experiment in one line, empty if it did not run: "99.9 ± 0.1 at length=30 / …"."""
    own = [one for one in all_measured() if one.experiment == experiment]
    if len(own) > MOST:
        own = [one for one in own if not one.settings] or own
        return f"{fmean(one.mean for one in own):.1f} (mean of {len(own)} columns)"
    return " / ".join(f"{one.text} at {one.place}" if one.place else one.text for one in own)


def value(experiment: str, place: str = "") -> str:
    """Return one result: mean ± standard deviation, or the number of seeds that solve the task.

    Raises:
        ValueError: there is no such result.
    """
    own = {one.place: one.text for one in all_measured() if one.experiment == experiment}
    if place not in own:
        raise ValueError(f"{experiment} {place}: no such result; there are {list(own)}")
    return own[place]
