"""Files with one step of a sequence in each row."""

import re
from functools import cached_property

import numpy as np

from gyral.core.errors import OptionError
from gyral.data.sequences.columns import Column, ColumnFile

ISO_DATE = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?)"
    r"(?P<zone>Z|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?)?"
)
SECOND = np.timedelta64(1, "s")


class LongFile:
    """The sequences of a file that has one step of a sequence in each row.

    The sequences are in the order of their first rows. See `gyral.data.sequences.columns.ColumnFile`.

    Args:
        file: the file. Each of its rows has one value of a column, or a list of numbers, which are a vector.
        sequence: name of the column that says which sequence a row belongs to.
        time: name of the column by which the steps of a sequence are sorted: numbers, or dates and times in the form of
            ISO 8601, all of them with a time zone, such as Z or +02:00, or none. None: the rows of a sequence are in
            the order of the file.

    Attributes:
        sequences: the name of each sequence.

    Raises:
        OptionError: one of the columns cannot be used, or two rows of a sequence have the same time.
    """

    def __init__(self, file: ColumnFile, sequence: str, time: str | None) -> None:
        self._file = file
        self.path, self.kind, self.names = file.path, file.kind, file.names
        column = self._scalar(sequence, texts=True)
        if column.values.dtype.kind not in "biufMOSTU":
            raise self._error(column.place, f"has the type {column.values.dtype}; must have numbers or texts")
        if not len(column.values):
            raise self._error(column.place, "has no rows")
        names = column.values.astype(str) if column.values.dtype.kind in "OST" else column.values
        _, first, group = np.unique(names, return_index=True, return_inverse=True)
        self._check(column, names == "" if names.dtype.kind == "U" else names != names, "is empty")
        self.sequences = tuple(str(names[row]) for row in np.sort(first))
        group = np.argsort(np.argsort(first))[group]  # in the order of the first rows
        times = None if time is None else self._times(time)
        self._order = np.argsort(group, kind="stable") if times is None else np.lexsort((times, group))
        self._group = group[self._order]
        self._sorted_times = None
        if times is not None:
            own = self._sorted_times = times[self._order]
            again = np.flatnonzero((self._group[1:] == self._group[:-1]) & (own[1:] == own[:-1]))
            if len(again):
                before, row = (int(self._order[again[0] + step]) for step in (0, 1))
                reason = f"{times[row]} is also the time of row {before} of the sequence {names[row]}"
                raise self._error(f"column {time}, row {row}", reason)

    @cached_property
    def _starts(self) -> np.ndarray:
        """Index of the first step of each sequence."""
        return np.flatnonzero(np.r_[True, self._group[1:] != self._group[:-1]])

    def gaps(self) -> np.ndarray:
        """Return the time since the previous step, (S,) float32, in seconds for dates; 0 at first steps."""
        assert self._sorted_times is not None, "without a column of times"
        later = self._sorted_times[1:] - self._sorted_times[:-1]
        gaps = np.zeros(len(self._sorted_times), dtype=np.float32)
        gaps[1:] = later / SECOND if later.dtype.kind == "m" else later
        gaps[self._starts] = 0
        return gaps

    def read(self, name: str, missing: bool = False, texts: bool = False) -> Column:
        """Return the values of all steps of a column.

        Raises:
            OptionError: the rows of the column do not have one value, or vectors of the same size.
        """
        column = self._file.read(name, missing, texts)
        values = column.values
        if len(column.lengths) != len(self._order):
            raise self._error(column.place, f"has {len(column.lengths)} rows; other columns have {len(self._order)}")
        if not column.is_scalar:
            size = column.lengths[0] if len(column.lengths) else 0
            differing = column.lengths != size
            if values.ndim > 1 or not size or differing.any():
                row = int(differing.argmax())
                raise self._error(f"{column.place}, row {row}", "must have one value, or as many as the first row")
            values = values.reshape(-1, size)
        stray = None if column.stray is None else int(np.flatnonzero(self._order == column.stray)[0])
        if column.stray is not None and not column.is_scalar:
            raise self._error(column.locate(column.stray), f"{column.values[column.stray]!s}; must be a number")
        lengths = np.diff(np.r_[self._starts, len(self._order)])
        return Column(column.place, values[self._order], lengths, rows=self._order, stray=stray)

    def is_constant(self, column: Column) -> bool:
        """Return whether a column that was read has the same value in all steps of each sequence."""
        return not self._changes(column).any()

    def once(self, column: Column) -> Column:
        """Return a column that was read with one entry per sequence.

        Raises:
            OptionError: a sequence has several values.
        """
        changes = self._changes(column)
        if changes.any():
            index = int(changes.argmax())
            first = self._starts[self._group[index]]
            reason = f"row {self._order[first]} of the same sequence has {column.values[first]}"
            reason = f"{column.values[index]}; {reason}; must be the same in all of its rows"
            raise self._error(column.locate(index), reason)
        stray = column.stray
        if stray is not None:
            stray = int(self._group[stray])
        return Column.of_scalars(column.place, column.values[self._starts], stray, self._order[self._starts])

    def _changes(self, column: Column) -> np.ndarray:
        """Return which steps, (S,) bool, have another value than the first of their sequence."""
        first = np.repeat(column.values[self._starts], column.lengths, axis=0)
        values = column.values
        differing = (values != first) & ~((values != values) & (first != first))  # NaN is the same as NaN
        return differing.reshape(len(values), -1).any(axis=1)

    def _scalar(self, name: str, texts: bool = False) -> Column:
        column = self._file.read(name, texts=texts)
        if not column.is_scalar or column.values.ndim > 1:
            raise self._error(column.place, "must have one value per row")
        return column

    def _times(self, name: str) -> np.ndarray:
        """Return the times of all rows as numbers or dates."""
        column = self._scalar(name)
        values = column.values
        if values.dtype.kind in "UOST":
            texts = values.astype(str)
            if column.stray is None:
                found = [ISO_DATE.fullmatch(text) for text in texts]
                wrong = np.array([match is None for match in found], dtype=bool)
            else:  # the others are numbers
                wrong = np.arange(len(texts)) == column.stray
            reason = "must be a number, or a date and time of ISO 8601, such as 2024-05-31T23:59 or 2024-05-31T23:59Z"
            self._check(column, wrong, reason)
            matches = [match for match in found if match is not None]
            zoned = np.array([match["zone"] is not None for match in matches], dtype=bool)
            self._check(column, zoned != zoned[:1], "must have a time zone, or none, as the first row")
            try:
                values = np.array([match["date"] for match in matches], dtype="datetime64[us]")
            except ValueError:
                raise self._error(column.place, f"has a date that does not exist; each {reason}") from None
            values = values - np.array([_minutes(match) for match in matches], dtype="timedelta64[m]")
        elif values.dtype.kind == "b":
            values = values.astype(np.int8)  # the difference of two of them is a number
        elif values.dtype.kind not in "iufM":
            raise self._error(column.place, f"has the type {values.dtype}; must have numbers or dates")
        self._check(column, values != values, "is not a number or date")
        return values

    def _check(self, column: Column, wrong: np.ndarray, reason: str) -> None:
        """Raise `OptionError` if an entry is wrong, (S,) bool."""
        if wrong.any():
            index = int(wrong.argmax())
            shown = str(column.values[index])
            raise self._error(column.locate(index), f"{shown}; {reason}" if shown else reason)

    def _error(self, place: str, reason: str) -> OptionError:
        return OptionError("data", self.path, f"{place}: {reason}")


def _minutes(match: re.Match[str]) -> int:
    """Return the minutes by which the time zone of a date is ahead of UTC."""
    minutes = 60 * int(match["hours"] or 0) + int(match["minutes"] or 0)
    return -minutes if match["sign"] == "-" else minutes
