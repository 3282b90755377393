"""Tables: their columns, entries and captions. An entry refers to the runs that its number summarizes."""

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from gyral.runs.run_record import RunRecord

MEAN_OVER = "mean ± standard deviation over"  # the start of a caption
CHECKPOINTS = "at the checkpoints with the best validation score"
Columns = Iterable[tuple[Any, ...]]
MARKS = re.compile(r"[^\w.,]+$")
SHARED = "; all with "  # before the overrides of all rows in a caption


@dataclass(frozen=True)
class Entry:
    """A number or a word in a table, and the runs that it summarizes.

    Attributes:
        text: the number as printed; empty if no run is done.
        notes: the seeds and steps behind the number, or more numbers.
        missing: the seeds that are not done, and their state.
        is_partial: whether the runs of some seeds were not started.
        runs: the runs, each with its own value, or None if it has no value.
        paper: the published value.
        mean, deviation: the mean and, of several values, the standard deviation with all digits.
        best: whether no other row is better in this column. Renderers print these entries in bold.
        others: the entries of runs with other budgets, which are printed as notes.
    """

    text: str
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    runs: Sequence[tuple[RunRecord, float | None]] = ()
    paper: float | None = None
    mean: float | None = None
    deviation: float | None = None
    best: bool = False
    others: tuple["Entry", ...] = ()
    is_partial: bool = False

    @property
    def lines(self) -> list[str]:
        return [line for line in (*self.text.split("\n"), *self.remarks) if line]

    @property
    def remarks(self) -> list[str]:
        """The lines below the number."""
        others = (f"{entry.text} after {entry.notes[-1]}" for entry in self.others if entry.text and entry.notes)
        return [*self.notes, *self.missing, *others]

    @property
    def line(self) -> str:
        """The number with its notes in parentheses."""
        text, notes = ", ".join(self.text.split("\n")), "; ".join(self.remarks)
        return f"{text} ({notes})" if text and notes else text or notes

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.runs if value is not None]


NOTHING = Entry("–")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        head: its head.
        entries: its entry in each row.
        higher_is_better: whether a greater number is better; None if the entries are not compared.
        is_detail: whether tables for papers leave it out unless it is chosen.
        is_prose: whether it is text.
    """

    head: str
    entries: Sequence[Entry]
    higher_is_better: bool | None = None
    is_detail: bool = False
    is_prose: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes:
        title: its title, empty if it continues the previous table.
        names: the names of the rows.
        columns: the columns right of the names.
        head: the head of the names.
        caption: a statement about all of its numbers.
    """

    title: str
    names: Sequence[str]
    columns: Sequence[Column]
    head: str = "row"
    caption: str = ""

    @property
    def heads(self) -> list[str]:
        """The heads of all columns, that of the names first."""
        return [self.head, *[column.head for column in self.columns]]

    @property
    def rows(self) -> list[tuple[str, tuple[Entry, ...]]]:
        """The name and the entries of each row."""
        entries = (
            zip(*[column.entries for column in self.columns], strict=True) if self.columns else [()] * len(self.names)
        )
        return list(zip(self.names, entries, strict=True))

    @property
    def prose(self) -> bool:
        """Whether the last column is text."""
        return bool(self.columns) and self.columns[-1].is_prose

    def with_rows(self, rows: Sequence[tuple[str, Sequence[Entry]]]) -> "Table":
        """Return the table with other rows."""
        columns = [replace(column, entries=[own[i] for _, own in rows]) for i, column in enumerate(self.columns)]
        return replace(self, names=[name for name, _ in rows], columns=columns)

    def without_empty_rows(self) -> "Table":
        """Return the table without rows that have neither a number nor a published value, unless all are empty."""
        shown = [row for row in self.rows if any(entry != NOTHING and entry.lines != ["–"] for entry in row[1])]
        return self.with_rows(shown) if 0 < len(shown) < len(self.names) else self

    def with_best(self, groups: Sequence[Hashable] | None = None) -> "Table":
        """Return the table with the best entries of each column marked.

        Args:
            groups: for each row, the rows with which it is compared are those with the same value, and None stands for
                no row; None compares all rows.
        """
        groups = [0] * len(self.names) if groups is None else groups
        columns = []
        for column in self.columns:
            entries = list(column.entries)
            for group in {*groups} - {None} if column.higher_is_better is not None and len(entries) > 1 else ():
                own = [index for index, other in enumerate(groups) if other == group]
                marked = mark_best([entries[index] for index in own], bool(column.higher_is_better))
                for index, entry in zip(own, marked, strict=True):
                    entries[index] = entry
            columns.append(replace(column, entries=entries))
        return replace(self, columns=columns)

    def transposed(self) -> "Table":
        """Return the table with its rows as columns."""
        columns = [Column(name, entries) for name, entries in self.rows]
        return replace(self, names=[column.head for column in self.columns], columns=columns)

    def captioned(self, shared: Sequence[str], runs: str = f"{MEAN_OVER} seeds") -> "Table":
        """Return the table with its caption.

        Args:
            shared: overrides that all of its runs share.
            runs: what a number is a mean of.
        """
        text = f"{runs}, {CHECKPOINTS}"
        return replace(self, caption=f"{text}{SHARED}{' '.join(shared)}" if shared else text)

    def with_common_notes(self, shared: Sequence[str]) -> "Table":
        """Return the table with a caption that has the seeds and the steps which its rows share.

        The caption has the seeds of more than half of the rows, and likewise the steps. A row has those of its numbers
        that differ from the caption in parentheses.

        Args:
            shared: overrides that all of its runs share.
        """
        rows = [[entry for entry in entries if len(entry.notes) == 2] for _, entries in self.rows]
        rows = [entries for entries in rows if entries]
        if not rows:
            return self.captioned(shared)
        common, is_shared = ["", ""], [False, False]
        for part in range(2):
            found = [{entry.notes[part] for entry in entries} for entries in rows]
            most = next((next(iter(own)) for own in found if len(own) == 1 and 2 * found.count(own) > len(found)), "")
            common[part], is_shared[part] = most, all(own == {most} for own in found)

        def without_common(entry: Entry) -> Entry:
            return replace(entry, notes=tuple(note for note in entry.notes if note not in common))

        kept = [(name, [*map(without_common, entries)]) for name, entries in self.rows]
        return self.with_rows(kept).captioned(shared, _common_runs(common, is_shared))


def _common_runs(common: Sequence[str], is_shared: Sequence[bool]) -> str:
    """Return the text that describes over which runs the numbers of a table are means.

    Args:
        common: the seeds and the steps that most of its rows share, "" for none.
        is_shared: for each of these, whether all rows share it.
    """
    seeds, steps = (note if shared else "" for note, shared in zip(common, is_shared, strict=True))
    is_single = seeds.startswith(("seed ", "1 of "))
    runs = seeds if is_single else f"{MEAN_OVER} {seeds or 'seeds'}"
    runs += f", {steps}{'' if is_single else ' each'}" if steps else ""
    most = " and ".join(note for note, shared in zip(common, is_shared, strict=True) if note and not shared)
    return f"{runs} ({most} unless noted)" if most else runs


def pivot(rows: Sequence[Any], columns: Columns, title: str = "", names: Any = None, **more: Any) -> Table:
    """Return a table with a row for each of some rows, whose entries the functions of the columns make.

    Args:
        rows: the rows.
        columns: of each its head, the function that makes the entry of a row, and the further fields of `Column`.
        title: the title.
        names: the names of the rows, None for their labels.
        **more: further fields of `Table`.
    """
    shown = [Column(head, [cell(row) for row in rows], *others) for head, cell, *others in columns]
    return Table(title, [row.label for row in rows] if names is None else names, shown, **more)


def mark_best(entries: Sequence[Entry], higher_is_better: bool) -> list[Entry]:
    """Return entries that are compared with each other, with the best of them marked.

    Entries that print the same mean as the best one are marked too. Entries that lack runs are not compared.
    A single entry is not marked, and neither is a best one that does not beat a predictor without memory or
    an informed guess.
    """
    complete = {i: entry for i, entry in enumerate(entries) if not entry.missing and not entry.is_partial}
    means = {i: entry.mean for i, entry in complete.items() if entry.mean is not None}
    finite = [mean for mean in means.values() if math.isfinite(mean)]
    if len(finite) < 2:
        return list(entries)
    best = max(finite) if higher_is_better else min(finite)
    first = [entries[index] for index, mean in means.items() if mean == best]
    printed = {_number(entry) for entry in first if _beats_references(entry)}
    return [
        replace(entry, best=_number(entry) in printed) if index in means else entry
        for index, entry in enumerate(entries)
    ]


def _number(entry: Entry) -> str:
    """Return the mean of an entry as it is printed, without marks."""
    return MARKS.sub("", entry.text.partition(" ")[0])


def _beats_references(entry: Entry) -> bool:
    """Return whether the runs of an entry beat the best predictor without memory and all informed guesses.

    It is True for runs that do not tell: published values, and transcribed runs without a baseline.
    """
    runs = [record for record, value in entry.runs if value is not None]
    floors = {measure.name: measure for record in runs for measure in record.measures if measure.floor_of}
    pairs = [("test/loss", "test/baseline", -1)]
    pairs += [
        (f"test/{each.floor_of}", f"test/{each.name}", 1 if each.higher_is_better else -1) for each in floors.values()
    ]
    for own, reference, sign in pairs:
        both = [record.metrics for record in runs if {own, reference} <= record.metrics.keys()]
        if both and not fmean(sign * (metrics[own] - metrics[reference]) for metrics in both) > 0:
            return False
    return True
