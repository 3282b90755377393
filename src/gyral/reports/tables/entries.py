"""Tables and their entries. An entry refers to the runs that its number summarizes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from gyral.core.measures import Measure
from gyral.runs.run_record import RunRecord

MAX_LISTED_SEEDS = 5
MEAN_OVER = "mean ± standard deviation over"  # the start of a caption


@dataclass(frozen=True)
class Entry:
    """A number or a word in a table, and the runs that it summarizes.

    Attributes:
        text: the number as printed; empty if no run is done.
        notes: the seeds and steps behind the number.
        missing: the seeds that are not done, and their state.
        runs: the runs, each with its own value, or None if it has no value.
        paper: the published value.
        mean, deviation: the mean and, of several values, the standard deviation with all digits.
        best: whether no other row is better in this column. Renderers print these entries in bold.
        others: the entries of runs with other budgets, which are printed as notes.
    """

    text: str
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    runs: tuple[tuple[RunRecord, float | None], ...] = ()
    paper: float | None = None
    mean: float | None = None
    deviation: float | None = None
    best: bool = False
    others: tuple["Entry", ...] = ()

    @property
    def lines(self) -> list[str]:
        return [line for line in (*self.text.split("\n"), *self.remarks) if line]

    @property
    def remarks(self) -> list[str]:
        """The lines below the number."""
        others = (f"{entry.text} after {entry.notes[-1]}" for entry in self.others if entry.text and entry.notes)
        return [*self.notes, *self.missing, *others]

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.runs if value is not None]

    def with_statistics(self) -> "Entry":
        """Return the entry with the mean and the standard deviation of the values of its runs."""
        values = self.values
        deviation = standard_deviation(values) if len(values) > 1 else None
        return replace(self, mean=fmean(values), deviation=deviation) if values else self


NOTHING = Entry("–")
TableRow = tuple[str, tuple[Entry, ...]]  # the name of a row and its entries


def without_empty_rows(rows: Sequence[TableRow]) -> list[TableRow]:
    """Return the rows that have a number or a published value, or all of them if none has."""
    return [row for row in rows if any(entry.lines != ["–"] for entry in row[1])] or list(rows)


def mark_best(entries: Sequence[Entry], higher_is_better: bool, compared: Sequence[bool] | None = None) -> list[Entry]:
    """Return entries that are compared with each other, with the best of them marked.

    Entries that print the same mean as the best one are marked too. Entries with missing runs are not compared.
    A single entry is not marked.

    Args:
        entries: the entries.
        higher_is_better: whether a greater number is better.
        compared: whether each entry is compared; None: all.
    """
    considered = [not entry.missing and (compared is None or compared[i]) for i, entry in enumerate(entries)]
    means = {i: entry.mean for i, entry in enumerate(entries) if entry.mean is not None and considered[i]}
    finite = [mean for mean in means.values() if math.isfinite(mean)]
    if len(finite) < 2:
        return list(entries)
    best = max(finite) if higher_is_better else min(finite)
    printed = {entries[index].text.partition(" ")[0] for index, mean in means.items() if mean == best}
    return [
        replace(entry, best=entry.text.partition(" ")[0] in printed) if index in means else entry
        for index, entry in enumerate(entries)
    ]


def mark_best_of_column(
    rows: Sequence[TableRow],
    column: int,
    higher_is_better: bool,
    compared: Sequence[bool] | None = None,
) -> list[TableRow]:
    """Return the rows of a table with the best entries of a column marked, see `mark_best`.

    Args:
        rows: the name and the entries of each row.
        column: index of the column among the entries.
        higher_is_better: whether a greater number is better.
        compared: whether each row is compared; None: all.
    """
    marked = mark_best([entries[column] for _, entries in rows], higher_is_better, compared)
    return [
        (name, (*entries[:column], entry, *entries[column + 1 :]))
        for (name, entries), entry in zip(rows, marked, strict=True)
    ]


def move_common_notes(
    rows: Sequence[TableRow],
) -> tuple[list[TableRow], str]:
    """Return the rows of a table without the seeds and steps that most of them share, and the start of the caption.

    A row keeps its notes if one of its numbers has other seeds or steps. All rows keep their notes unless more than
    half of the rows share seeds and steps.
    """
    notes = [{entry.notes for entry in entries if entry.notes} for _, entries in rows]
    noted = [found for found in notes if found]
    common = next((found for found in noted if len(found) == 1 and 2 * noted.count(found) > len(noted)), None)
    if common is None:
        return list(rows), f"{MEAN_OVER} seeds"
    without = [
        (name, tuple(replace(entry, notes=()) for entry in entries) if found == common else entries)
        for (name, entries), found in zip(rows, notes, strict=True)
    ]
    seeds, steps = next(iter(common))
    if noted.count(common) < len(noted):
        return without, f"{MEAN_OVER} seeds ({seeds} and {steps} unless a row says otherwise)"
    is_single = seeds.startswith("seed ")
    return without, f"{seeds}, {steps}" if is_single else f"{MEAN_OVER} {seeds}, {steps} each"


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes:
        title: its title, empty if it continues the previous table.
        caption: a statement about all of its numbers.
        heads: heads of its columns; the first column has the names of the rows.
        rows: the name and the entries of each row.
        prose: whether the last column is text.
        details: heads of columns that tables for papers leave out unless they are chosen.
    """

    title: str
    caption: str
    heads: tuple[str, ...]
    rows: Sequence[TableRow]
    prose: bool = False
    details: tuple[str, ...] = ()


Value = Callable[[RunRecord], float | None]  # gives a number of a run, None if it has none


def value_of(measure: Measure) -> Value:
    """Return a function that gives the measure of a run on the test split as it is printed, None if it has none."""
    return lambda record: measure.value(record.results)


def result_of(name: str, scale: float = 1) -> Value:
    """Return a function that gives a result of a run times a factor, None if it has none."""

    def value(record: RunRecord) -> float | None:
        found = (record.results or {}).get(name)
        return None if found is None else scale * found

    return value


def mean_entry(records: Sequence[RunRecord], value: Value, digits: int, with_deviation: bool = True) -> Entry:
    """Return the entry of the mean and the standard deviation of a number of runs, without notes."""
    entry = Entry("–", runs=tuple((record, value(record)) for record in records)).with_statistics()
    if entry.mean is None:
        return entry
    deviation = "" if entry.deviation is None or not with_deviation else f" ± {entry.deviation:.{digits}f}"
    return replace(entry, text=f"{entry.mean:.{digits}f}{deviation}")


def stacked_entry(
    runs: Sequence[tuple[RunRecord, float | None]],
    digits: int,
    marks: str,
    missing: Sequence[str],
    paper: float | None,
    best: float | None = None,
) -> Entry:
    """Return the entry of a mean, with the deviation, the best value and the published one below it."""
    entry = Entry("" if missing else "–", (), tuple(missing), tuple(runs), paper).with_statistics()
    numbers = (("±", entry.deviation), ("best", best if entry.deviation is not None else None), ("paper", paper))
    notes = tuple(f"{name} {number:.{digits}f}" for name, number in numbers if number is not None)
    text = entry.text if entry.mean is None else f"{entry.mean:.{digits}f}{marks}"
    return replace(entry, text=text, notes=notes)


def with_notes(entry: Entry, records: Sequence[RunRecord]) -> Entry:
    """Return an entry with the seeds and steps of its runs, and with the seeds that are not done."""
    done = [record for record in records if record.results]
    states: dict[str, list[str]] = {}
    for record in records:
        if not record.results:
            states.setdefault(record.state, []).append(record.seed)
    return replace(
        entry,
        notes=(describe_seeds([record.seed for record in done]), describe_steps(done)) if done else (),
        missing=tuple(f"{describe_seeds(seeds)} {state}" for state, seeds in states.items()),
    )


def describe_seeds(seeds: list[str]) -> str:
    """Return a short description of seeds, such as "seeds 1, 2"."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    numbers = sorted(int(seed) for seed in seeds if seed.isdecimal())
    if len(seeds) <= MAX_LISTED_SEEDS or len(numbers) < len(seeds):
        return f"seeds {', '.join(sorted(seeds, key=lambda seed: (len(seed), seed)))}"
    is_range = numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    return f"seeds {numbers[0]} to {numbers[-1]}" if is_range else f"{len(seeds)} seeds"


def describe_steps(records: Sequence[RunRecord]) -> str:
    """Return the number of steps of runs, such as "600 steps" or "600 to 1,000 steps"."""
    steps = sorted({record.steps for record in records if record.steps or not record.transcribed})
    if not steps:
        return "unknown steps"
    return f"{steps[0]:,} steps" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,} steps"


def loss_ratio(record: RunRecord) -> float | None:
    """Return the ratio of test loss and memoryless baseline, or None if a transcribed record lacks one."""
    loss, baseline = record.metrics.get("test/loss"), record.metrics.get("test/baseline")
    return None if loss is None or baseline is None else loss / baseline


def parameters_entry(records: list[RunRecord], paper: float | None = None, as_range: bool = False) -> Entry:
    """Return the entry of the distinct numbers of parameters, or of the smallest and the largest."""
    runs = tuple((record, record.metrics.get("parameters")) for record in records)
    sizes = list(dict.fromkeys(value for _, value in runs if value is not None))
    if as_range and len(sizes) > 1:
        text = f"{min(sizes):,.0f} to {max(sizes):,.0f}"
    else:
        text = "\n".join(f"{size:,.0f}" for size in sizes)
    return Entry(text or "–", runs=runs, paper=paper, mean=sizes[0] if len(sizes) == 1 else None)


def published_entry(value: float | None, digits: int) -> Entry:
    return NOTHING if value is None else Entry(f"{value:.{digits}f}")


def standard_deviation(values: list[float]) -> float:
    """Return the standard deviation of a sample of at least two values, NaN if one of them is not finite."""
    return stdev(values) if all(map(math.isfinite, values)) else math.nan


def format_thousands(count: float) -> str:
    """Return a number of parameters as papers print it: 14k, 7.2M."""
    return f"{count / 1000:g}k" if count < 1e6 else f"{count / 1e6:g}M"
