"""The steps of sequences from the columns of a file, with or without targets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt
from gyral.data.sequences.columns import Column, ColumnFile
from gyral.data.sequences.long_form import LongFile
from gyral.data.sequences.parsing import Parser


@dataclass(frozen=True)
class Inputs:
    """The steps of all sequences of a file.

    Attributes:
        file: the file that has the columns of one entry per sequence or step.
        long: the same, if the file has one step in each row; else None.
        parser: the parser of the file.
        inputs: the steps that are kept: tokens (S,), tokens (S, W), or real vectors (S, X), NaN where one is missing.
        available, lengths: (N,) number of steps of each sequence in the file, and of those that are kept.
        is_kept: (all steps of the file,) mask of the steps that are kept.
        names: the name of each sequence, if the file has one step in each row; else empty.
    """

    file: ColumnFile
    long: LongFile | None
    parser: Parser
    inputs: np.ndarray
    available: np.ndarray
    lengths: np.ndarray
    is_kept: np.ndarray
    names: tuple[str, ...]

    @property
    def starts(self) -> np.ndarray:
        """(N,) index of the first step of each sequence."""
        return np.cumsum(self.lengths) - self.lengths


def read_inputs(
    file: ColumnFile,
    *,
    inputs: str | Sequence[str],
    lengths: str | None,
    sequence: str | None,
    time: str | None,
    missing: bool,
    real: bool,
    time_gaps: bool,
    precise: bool = False,
) -> Inputs:
    """Read the steps of all sequences.

    Args:
        file: the file.
        inputs, lengths, sequence, time, time_gaps: see `gyral.data.sequences.corpus.SequencesFile`.
        missing: whether inputs may be missing.
        real: whether integers are real values rather than tokens.
        precise: whether numbers are refused that float32 cannot tell apart.

    Raises:
        OptionError: an option or a column cannot be used.
    """
    long = _long_form(file, sequence, time)
    if time_gaps and (long is None or time is None):
        raise OptionError("time_gaps", True, "needs time, the column with the time of each step, and sequence")
    file = long or file
    columns = read_columns(file, "inputs", inputs, missing)
    given = read_optional(file, "lengths", lengths)
    if long is not None:
        given = given and long.once(given)
    parser = Parser(file.path, missing=missing, real=real, precise=precise)
    values, available = parser.inputs(columns)
    kept = available if given is None else parser.lengths(given, available)
    is_kept = np.arange(available.sum()) < np.repeat(np.cumsum(available) - available + kept, available)
    parser.check_inputs(columns, is_kept)
    if time_gaps and long is not None:
        values = np.column_stack([values, long.gaps()])
    return Inputs(file, long, parser, values[is_kept], available, kept, is_kept, long.sequences if long else ())


def _long_form(file: ColumnFile, sequence: str | None, time: str | None) -> LongFile | None:
    """Return the sequences of a file with one step in each row, None if a row has a whole sequence."""
    if sequence is None:
        if time is not None:
            reason = "must be null without sequence, the column that names the sequence of each row"
            raise OptionError("time", time, reason)
        return None
    _check_name(file, "sequence", sequence)
    if time is not None:
        _check_name(file, "time", time)
    return LongFile(file, sequence, time)


def names_of(option: str, names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the value of an option as a tuple of names.

    Raises:
        OptionError: there are none.
    """
    listed = (names,) if isinstance(names, str) else tuple(names)
    if not listed:
        raise OptionError(option, names, "must be the name of an array or a column, or a list of names")
    return listed


def read_columns(file: ColumnFile, option: str, names: str | Sequence[str], missing: bool = False) -> list[Column]:
    """Return the columns with these names.

    Args:
        file: the file.
        option: the option whose value is `names`, for errors.
        names: a name, or several.
        missing: whether numbers may be missing, which are NaN.

    Raises:
        OptionError: the file has no such column, or it cannot be read.
    """
    listed = names_of(option, names)
    for name in listed:
        _check_name(file, option, name, names)
    return [file.read(name, missing) for name in listed]


def _check_name(file: ColumnFile, option: str, name: str, value: str | Sequence[str] | None = None) -> None:
    """Check that the file has a column with a name that is the value of an option, or one of its values."""
    if name not in file.names:
        reason = f"{file.path} has no {file.kind} {name}; it has {excerpt(file.names) or 'none'}"
        raise OptionError(option, name if value is None else value, reason)


def read_optional(file: ColumnFile, option: str, name: str | None) -> Column | None:
    """Return a column that the file may lack. It must exist only if its name is not the default."""
    if name is None or (name == option and name not in file.names):
        return None
    return read_columns(file, option, name)[0]
