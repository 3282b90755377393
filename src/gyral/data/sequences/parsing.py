"""Inputs, targets, lengths and splits from columns, with errors that name the column and the row."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from gyral.core.errors import OptionError
from gyral.core.inputs import count_of, excerpt
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED
from gyral.data.sequences.columns import MISSING_WORDS, Column

MAX_VOCABULARY = 1_000_000  # larger integers are measurements rather than tokens


MOST_NUMBERS = 100  # classes that integers other than 0 to C − 1 are read as without being told
LARGEST_ROUNDING = 1e-3  # of the standard deviation of numbers
SAME = 1e-13  # of their size: numbers with a smaller standard deviation are equal but for the rounding of a sum
OBJECTIVES = ("classification", "regression")


class Parser:
    """Reads columns of a file.

    Args:
        path: path of the file, for errors. All methods raise `OptionError` if a column cannot be used.
        objective: what the targets are for: "classification" or "regression"; None: as their type says.
        missing: whether inputs and real targets may be missing, which are NaN.
        real: whether integer inputs are real values rather than tokens.
        precise: whether numbers are refused that float32, in which they are kept, cannot tell apart.
    """

    def __init__(
        self,
        path: Path,
        objective: str | None = None,
        *,
        missing: bool = False,
        real: bool = False,
        precise: bool = False,
    ) -> None:
        self.path = path
        self.objective = objective
        self.missing = missing
        self.real = real
        self.precise = precise

    def inputs(self, columns: list[Column]) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps of all rows, tokens (S,), tokens (S, W) or real vectors (S, X), and the lengths (N,).

        If inputs may be missing, the columns get the lengths of the longest one in each row, filled with NaN.
        """
        if self.missing:
            columns[:] = self._equally_long(columns)
        first = columns[0]
        for column in columns:
            if column.is_scalar:
                reason = (
                    "has one value per row; must have one for each step, or sequence must name the column that says"
                )
                raise self._error(column.place, f"{reason} which sequence a row belongs to")
            self._check_numbers(column)
            if not column.values.size:
                raise self._error(column.place, "has no values")
            if column.values.ndim > (2 if len(columns) == 1 else 1):
                allowed = "(N, T) or (N, T, X)" if len(columns) == 1 else "(N, T), as one of several inputs"
                raise self._error(column.place, f"has {column.values.ndim + 1} dimensions; must have {allowed}")
            self._check_lengths(column, first.lengths, f"{first.place} has")
        empty = first.lengths == 0
        if empty.any():
            raise self._error(f"{first.place}, row {empty.argmax()}", "has no steps")
        values = self._join(columns, "tokens")
        if self.real and not is_real(values):
            values = _single_precision(values).reshape(len(values), -1)
        return values, first.lengths

    def _equally_long(self, columns: list[Column]) -> list[Column]:
        """Return columns with as many steps in each row as the longest one has, if they have as many rows."""
        same = [column for column in columns if not column.is_scalar and column.values.ndim == 1]
        numeric = all(column.values.dtype.kind in "biuf" for column in same)
        if not numeric or len(same) < len(columns) or len({len(column.lengths) for column in columns}) > 1:
            return columns
        lengths = np.max([column.lengths for column in columns], axis=0)
        steps = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        filled = []
        for column in columns:
            values = np.full(len(steps), np.nan)
            values[steps < np.repeat(column.lengths, lengths)] = column.values
            filled.append(
                replace(column, values=values, lengths=lengths) if (column.lengths < lengths).any() else column
            )
        return filled

    def lengths(self, column: Column, available: np.ndarray) -> np.ndarray:
        """Return the lengths (N,), at most the available lengths."""
        self._check_rows(column, len(available))
        self._check_numbers(column)
        if not column.is_scalar or column.values.dtype.kind not in "iu":
            raise self._error(column.place, "must have one integer per row")
        wrong = (column.values < 1) | (column.values > available)
        if wrong.any():
            row = int(wrong.argmax())
            raise self._error(column.locate(row), f"{column.values[row]}; must be from 1 to {available[row]}")
        return column.values.astype(np.int64)

    def check_inputs(self, columns: list[Column], is_kept: np.ndarray) -> None:
        """Check that the inputs of the steps that are kept, (S,) bool, are finite numbers or tokens."""
        for column in columns:
            self._check_finite(column, is_kept)
            if self.real or len(columns) > 1 or is_real(column.values):
                self._check_precision(column, is_kept)
        if len(columns) == 1 and not is_real(columns[0].values) and not self.real:
            column = columns[0]
            for wrong, reason in (
                (column.values < 0, "tokens must be ≥ 0"),
                (
                    column.values >= MAX_VOCABULARY,
                    f"tokens must be below {MAX_VOCABULARY:,}; write measurements as real numbers, not as integers",
                ),
            ):
                self._refuse_first(column, wrong, is_kept, reason)

    def targets(
        self, columns: list[Column], available: np.ndarray, is_kept: np.ndarray, per_step: bool | None
    ) -> tuple[np.ndarray, bool]:
        """Return the targets, classes (S,) or (N,) or real values (S, Y) or (N, Y), and whether they are per step.

        Args:
            columns: their columns.
            available: (N,) number of steps of each row in the file.
            is_kept: (S,) mask of the steps that are kept.
            per_step: whether each step has a target. None: if the shape fits.
        """
        first = columns[0]
        for column in columns:
            self._check_rows(column, len(available))
            if column.is_scalar != first.is_scalar:
                raise self._error(column.place, f"and {first.place} must both have one value per row, or one per step")
        if per_step is None:
            fits = np.array_equal(first.lengths, available)
            per_step = not first.is_scalar and (fits or first.values.ndim > 1 or len(set(first.lengths.tolist())) > 1)
        if per_step:
            for column in columns:
                if column.is_scalar:
                    raise self._error(column.place, "has one value per row; must have one for each step (per_step)")
                self._check_lengths(column, available, "its input has")
        values = self._join(columns, "classes")
        if not per_step and not first.is_scalar:
            values = self._vectors(first, values)
        counted = is_kept if per_step else np.ones(len(first.values), dtype=bool)
        for column in columns:
            self._check_finite(column, counted)
            if is_real(values):
                self._check_precision(column, counted)
        if not is_real(values):
            self._check_classes(first, counted)
        elif self.objective is None and values.shape[1] == 1 and _is_whole(values[counted] if per_step else values):
            reason = "has whole numbers of a real type, such as 1.0, which can be classes or measurements"
            raise self._error(first.place, f"{reason}; set task.objective=classification or task.objective=regression")
        return values, per_step

    def typed_targets(
        self, columns: list[Column], is_kept: np.ndarray, splits: dict[str, np.ndarray]
    ) -> tuple[list[Column], list[str]]:
        """Return the targets as numbers of the type that the objective needs, and the labels of the classes.

        Texts are labels, and so are integers other than 0 to C − 1, such as −1 and 1. Their classes are 0 to C − 1 in
        the sorted order of the labels of the training split. Other integers have no labels. An empty text, or NaN for
        classes, is a place without a class.

        Args:
            columns: the columns of the targets.
            is_kept: (S,) mask of the steps that are kept.
            splits: the rows of each split.
        """
        kinds = {column.values.dtype.kind for column in columns}
        if kinds & set("USTO"):
            return self._labelled(columns, is_kept, splits)
        if not kinds <= set("biuf"):
            return columns, []  # `targets` refuses them
        if self.objective == "regression":
            return [replace(column, values=column.values.astype(np.float64)) for column in columns], []
        if self.objective == "classification" and "f" in kinds:
            missing = np.isnan(columns[0].values)
            if len(columns) > 1 or not _is_whole(columns[0].values):
                raise self._error(
                    columns[0].place, "must have whole numbers or texts for task.objective=classification"
                )
            columns = [replace(columns[0], values=np.where(missing, IGNORED, columns[0].values).astype(np.int64))]
        return self._numbered(columns, is_kept, splits)

    def _numbered(
        self, columns: list[Column], is_kept: np.ndarray, splits: dict[str, np.ndarray]
    ) -> tuple[list[Column], list[str]]:
        """Return integer targets as classes from 0 to C − 1, and their labels if they were other integers."""
        column, values = columns[0], columns[0].values
        fits = column.is_scalar or len(is_kept) == len(values)
        if len(columns) > 1 or values.ndim > 1 or is_real(values) or not fits:
            return columns, []  # `targets` refuses integers of these shapes
        counted = values != IGNORED
        if not column.is_scalar:
            counted &= is_kept
        found = np.unique(values[counted])
        if np.array_equal(found, np.arange(len(found))):
            return columns, []
        if self.objective is None and len(found) > MOST_NUMBERS:
            reason = f"has {len(found)} different integers, which can be classes or measurements"
            raise self._error(column.place, f"{reason}; set task.objective=classification or task.objective=regression")
        return self._relabelled(column, values, counted, splits)

    def _labelled(
        self, columns: list[Column], is_kept: np.ndarray, splits: dict[str, np.ndarray]
    ) -> tuple[list[Column], list[str]]:
        column = columns[0]
        if self.objective != "classification":
            for each in columns:
                self._check_numbers(each, "; task.objective=classification reads all of them as labels")
        if self.objective == "regression" or len(columns) > 1 or column.values.ndim > 1:
            reason = "has texts, which are classes; there must be one column of them, and no task.objective=regression"
            raise self._error(column.place, reason)
        if column.values.dtype.kind == "O" and not all(isinstance(value, str) for value in column.values):
            raise self._error(column.place, "must have integers, real numbers or texts")
        is_bytes = column.values.dtype.kind == "S"
        texts = np.char.decode(column.values, "utf-8", "replace") if is_bytes else column.values.astype(str)
        counted = texts != ""
        if not column.is_scalar and len(is_kept) == len(texts):
            counted &= is_kept
        return self._relabelled(column, texts, counted, splits)

    def _relabelled(
        self, column: Column, values: np.ndarray, counted: np.ndarray, splits: dict[str, np.ndarray]
    ) -> tuple[list[Column], list[str]]:
        """Return a column with the classes of its values, and the labels of the classes.

        Args:
            column: the column.
            values: its entries (S,), integers or texts.
            counted: (S,) mask of the entries that are classes.
            splits: the rows of each split.
        """
        row_of = np.repeat(np.arange(len(column.lengths)), column.lengths)
        labels = np.unique(values[counted & np.isin(row_of, splits["train"])])
        unknown = counted & ~np.isin(values, labels)
        if unknown.any():
            index = int(unknown.argmax())
            known = f"not a label of the training split, which has {excerpt(map(str, labels)) or 'none'}"
            raise self._error(column.locate(index), f"{excerpt([str(values[index])])}; {known}")
        if len(labels) == 1:
            raise self._error(column.place, f"has a single class, {labels[0]}; must have at least two")
        classes = np.where(counted, np.searchsorted(labels, values), IGNORED)
        return [replace(column, values=classes)], [str(label) for label in labels]

    def splits(self, column: Column, count: int) -> dict[str, np.ndarray]:
        """Return the rows of each split from a column with their names."""
        self._check_rows(column, count)
        if not column.is_scalar or column.values.dtype.kind not in "USTO":
            raise self._error(column.place, f"must have one text per row: {', '.join(SPLITS)}")
        is_bytes = column.values.dtype.kind == "S"
        names = np.char.decode(column.values, "utf-8", "replace") if is_bytes else column.values.astype(str)
        unknown = ~np.isin(names, SPLITS)
        if unknown.any():
            row = int(unknown.argmax())
            raise self._error(column.locate(row), f"{excerpt([str(names[row])])}; must be one of {', '.join(SPLITS)}")
        rows = {name: np.flatnonzero(names == name) for name in SPLITS}
        for name, found in rows.items():
            if not len(found):
                raise self._error(column.place, f"no row is {name}; each of {', '.join(SPLITS)} needs rows")
        return rows

    def _error(self, place: str, reason: str) -> OptionError:
        return OptionError("data", self.path, f"{place}: {reason}")

    def _check_numbers(self, column: Column, advice: str = "") -> None:
        """Check that a column of a .csv file does not have both numbers and texts."""
        if column.stray is not None:
            text = excerpt([str(column.values[column.stray])])
            reason = f"{text}; must be a number{_advice(text)}" if text else "is empty; must have a number"
            if not advice and text.lower() in MISSING_WORDS:
                advice = "; a run with task.missing=mask reads missing ones"
            raise self._error(column.locate(column.stray), f"{reason}, as other rows have{advice}")

    def _check_rows(self, column: Column, count: int) -> None:
        if len(column.lengths) != count:
            raise self._error(column.place, f"has {len(column.lengths)} rows; the inputs have {count}")

    def _check_lengths(self, column: Column, lengths: np.ndarray, other: str) -> None:
        """Check that the rows of a column have these lengths."""
        self._check_rows(column, len(lengths))
        differing = column.lengths != lengths
        if differing.any():
            row = differing.argmax()
            own, others = (count_of(each[row], "step") for each in (column.lengths, lengths))
            raise self._error(f"{column.place}, row {row}", f"has {own}; {other} {others}")

    def _join(self, columns: list[Column], integers: str) -> np.ndarray:
        """Return integers (S,) or (S, W), or real numbers (S, X), whose dimensions may be several columns."""
        for column in columns:
            if column.values.dtype.kind in "STU" and column.values.size:
                text = excerpt([str(column.values.flat[0])])
                reason = f"{text}; must have integers ({integers}) or real numbers{_advice(text)}"
                raise self._error(column.locate(0), reason)
            if column.values.dtype.kind not in "biuf":
                reason = f"has the type {column.values.dtype}; must have integers ({integers}) or real numbers"
                raise self._error(column.place, reason)
        if len(columns) > 1:
            return np.stack([_single_precision(column.values) for column in columns], axis=-1)
        values = columns[0].values
        if not is_real(values):
            return values.astype(np.int64)
        values = _single_precision(values)
        return values[:, None] if values.ndim == 1 else values

    def _vectors(self, column: Column, values: np.ndarray) -> np.ndarray:
        """Return one vector per row, (N, Y), from the values of a column with lists."""
        if not is_real(values):
            own = count_of(column.lengths[0], "integer")
            raise self._error(column.place, f"has {own} in row 0; classes must be one per row, or one for each step")
        size = column.lengths[0]
        differing = column.lengths != size
        if differing.any() or values.shape[1] != 1:
            raise self._error(f"{column.place}, row {differing.argmax()}", f"must have {size} values, as row 0 has")
        return values.reshape(-1, size)

    def _check_finite(self, column: Column, counted: np.ndarray) -> None:
        if is_real(column.values):
            values = _single_precision(column.values)
            wrong = np.isinf(values) if self.missing else ~np.isfinite(values)
            self._refuse_first(column, wrong, counted, "must be a finite number (float32)")

    def _check_precision(self, column: Column, counted: np.ndarray) -> None:
        """Check that rounding to float32 is small against the differences of the values, as it is not of timestamps."""
        if not self.precise or column.values.dtype == np.float32:
            return
        for feature in column.values.reshape(len(column.values), -1).T:
            exact = feature[counted].astype(np.float64)
            exact = exact[~np.isnan(exact)]
            if not exact.size:
                continue
            rounding, spread, size = (exact - _single_precision(exact)).std(), exact.std(), np.abs(exact).max()
            if rounding > LARGEST_ROUNDING * spread and spread > SAME * size:
                step = f"{np.spacing(np.float32(size)):g}"
                reason = f"float32 has multiples of {step} at {size:g}, which is too coarse for these numbers"
                raise self._error(column.place, f"{reason}; subtract a constant, such as the first one")

    def _check_classes(self, column: Column, counted: np.ndarray) -> None:
        """Check that the classes are 0 to C − 1 and all occur."""
        values = column.values
        if values.ndim > 1:
            raise self._error(column.place, "has several integers per step; must have one class")
        self._refuse_first(column, (values < 0) & (values != IGNORED), counted, "classes must be ≥ 0")
        classes = np.unique(values[counted & (values != IGNORED)])
        if len(classes) == 1:
            raise self._error(column.place, f"has a single class, {classes[0]}; must have at least two")
        missing = f"the {len(classes)} classes of the file must be 0 to {len(classes) - 1}"
        self._refuse_first(column, values >= len(classes), counted, missing)

    def _refuse_first(self, column: Column, wrong: np.ndarray, counted: np.ndarray, reason: str) -> None:
        """Raise `OptionError` for the first entry that is counted, (S,) bool, and wrong, (S, …) bool."""
        found = wrong.reshape(len(wrong), -1).any(axis=1) & counted
        if found.any():
            index = int(found.argmax())
            value = column.values[index]
            shown = value[wrong[index]][0] if wrong.ndim > 1 else value
            raise self._error(column.locate(index), f"{shown}; {reason}")


def _advice(text: str) -> str:
    """Return the hint for a number that has a decimal comma, or an empty text."""
    return " with a decimal point" if re.fullmatch(r"[+-]?\d+,\d+", text) else ""


def _is_whole(values: np.ndarray) -> bool:
    """Return whether there are numbers, and all are finite and without a fraction, besides NaN for missing ones."""
    present = values[~np.isnan(values)]
    return bool(present.size and (np.isfinite(present) & (present == np.trunc(present))).all())


def is_real(values: np.ndarray) -> bool:
    """Return whether an array has real numbers rather than integers."""
    return values.dtype.kind == "f"


def _single_precision(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # an overflow is infinite, which is refused
        return values.astype(np.float32)
