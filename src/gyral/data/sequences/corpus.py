"""Sequences with classes or real values as targets, from a file with named columns.

docs/how-to/data.md describes the files. Rows and steps are counted from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt
from gyral.data.batching import IGNORED, Batch, mix_seed
from gyral.data.sequences.columns import Column, ColumnFile
from gyral.data.sequences.files import FORMS, open_columns
from gyral.data.sequences.long_form import LongFile
from gyral.data.sequences.parsing import OBJECTIVES, Parser, is_real
from gyral.data.splits import SPLITS


@dataclass(frozen=True)
class Sequences:
    """Sequences with their targets.

    Attributes:
        name: name of the file.
        inputs: the steps of all sequences one after another: tokens (S,), tokens (S, W), or real vectors (S, X).
        starts, lengths: (N,) first step and number of steps of each sequence.
        targets: classes (S,) or (N,), or real values (S, Y) or (N, Y).
        per_step: whether each step has a target.
        splits: the rows of each split.
        labels: the text of each class, if the targets are texts.
    """

    name: str
    inputs: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    targets: np.ndarray
    per_step: bool
    splits: dict[str, np.ndarray]
    labels: tuple[str, ...] = ()

    @cached_property
    def vocabulary_size(self) -> int | None:
        """One more than the largest token, None for real inputs."""
        return None if is_real(self.inputs) else int(self.inputs.max()) + 1

    @property
    def input_size(self) -> int | None:
        """X, None for tokens."""
        return self.inputs.shape[1] if is_real(self.inputs) else None

    @cached_property
    def classes(self) -> int | None:
        """Number of classes, None for real targets."""
        return None if is_real(self.targets) else int(self.targets.max()) + 1

    @property
    def target_size(self) -> int:
        """Y, of real targets."""
        return self.targets.shape[1]

    def targets_of(self, split: str) -> np.ndarray:
        """Return all targets of a split one after another: classes (n,), or real values (n, Y)."""
        rows = self.splits[split]
        targets = self.targets[self._steps(rows)] if self.per_step else self.targets[rows]
        return targets if is_real(targets) else targets[targets != IGNORED]

    def _steps(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices of all steps of some rows."""
        lengths = self.lengths[rows]
        before = np.cumsum(lengths) - lengths
        return np.repeat(self.starts[rows] - before, lengths) + np.arange(lengths.sum())

    def batch(self, rows: np.ndarray) -> Batch:
        """Return the sequences with the given indices, (B,), as one batch, padded to the longest one."""
        lengths = self.lengths[rows]
        step = np.arange(lengths.max())
        inside = step < lengths[:, None]
        places = np.where(inside, self.starts[rows][:, None] + step, 0)

        def padded(values: np.ndarray, padding: float) -> np.ndarray:
            taken = values[places]
            taken[~inside] = padding
            return taken

        inputs, targets = padded(self.inputs, 0), self.targets[rows] if not self.per_step else None
        if targets is None:
            targets = padded(self.targets, np.nan if is_real(self.targets) else IGNORED)
        ragged = None if inside.all() else torch.from_numpy(lengths)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), lengths=ragged)


class SplitExamples:
    """The sequences of one split, as `gyral.data.batching.Examples`."""

    def __init__(self, sequences: Sequences, split: str) -> None:
        self.sequences = sequences
        self.rows = sequences.splits[split]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> np.ndarray:
        return self.sequences.lengths[self.rows]

    def batch(self, rows: np.ndarray) -> Batch:
        return self.sequences.batch(self.rows[rows])


def load(
    data: str | Path | None,
    *,
    inputs: str | Sequence[str] = "inputs",
    targets: str | Sequence[str] = "targets",
    lengths: str | None = "lengths",
    split: str | None = "split",
    sequence: str | None = None,
    time: str | None = None,
    per_step: bool | None = None,
    objective: str | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    split_seed: int = 0,
) -> Sequences:
    """Read sequences from a file.

    Args:
        data: path of a .csv, .npz, .parquet, .jsonl or .json file, or of a folder of .parquet files; .csv, .jsonl and
            .json may be packed, as .csv.gz.
        inputs: name of the column with the inputs, or names of several columns, the dimensions of real vectors.
        targets: name of the column with the targets, or names of several columns, the dimensions of real values.
        lengths: name of the column with the lengths. None: all steps are used.
        split: name of the column with the splits. None: the rows are split at random.
        sequence: name of the column that says which sequence a row belongs to, if a row of the file has one step. The
            lengths, the splits, and targets that are not per step must be the same in all rows of a sequence. None: a
            row has a whole sequence.
        time: name of the column that sorts the steps of a sequence. None: they are in the order of the rows.
        per_step: whether each step has a target. None: inferred from the shape of the targets; with `sequence`, each
            step has one unless they are the same in all rows of every sequence.
        objective: "classification" or "regression". None: classification for integers and texts, regression for real
            numbers; if all of them are whole, an error asks for the choice.
        val_fraction, test_fraction: shares of the rows for validation and test, without a column for the splits.
        split_seed: seed of the random split.

    Raises:
        OptionError: an option is not allowed, or the file has values that cannot be used. The message names the column
            and the row.
        UserError: the package that reads the file is not installed.
    """
    check_real("val_fraction", val_fraction, above=0, below=1)
    check_real("test_fraction", test_fraction, above=0, below=1 - val_fraction)
    check_integer("split_seed", split_seed, minimum=0)
    if objective is not None:
        check_choice("objective", objective, OBJECTIVES)
    if per_step is not None:
        check_boolean("per_step", per_step)
    if data is None:
        raise OptionError("data", "null", f"must be {FORMS}, with your sequences")
    named = [*([targets] if isinstance(targets, str) else targets), lengths, split, sequence, time]
    file = open_columns(data, {name for name in named if isinstance(name, str)})
    long = _long_form(file, sequence, time)
    file = long or file
    columns = _read_columns(file, "inputs", inputs)
    answers = _read_columns(file, "targets", targets)
    given = {name: _read_optional(file, name, column) for name, column in (("lengths", lengths), ("split", split))}
    if long is not None:
        given = {name: column and long.once(column) for name, column in given.items()}
        if per_step is None:
            per_step = not all(map(long.is_constant, answers))
        if not per_step:
            answers = [long.once(column) for column in answers]

    parsed = Parser(file.path, objective)
    values, available = parsed.inputs(columns)
    kept = available if given["lengths"] is None else parsed.lengths(given["lengths"], available)
    is_kept = np.arange(available.sum()) < np.repeat(np.cumsum(available) - available + kept, available)
    parsed.check_inputs(columns, is_kept)
    if given["split"] is None:
        splits = _draw_splits(file.path, len(kept), val_fraction, test_fraction, split_seed)
    else:
        splits = parsed.splits(given["split"], len(kept))
    answers, labels = parsed.typed_targets(answers, is_kept, splits)
    target_values, has_steps = parsed.targets(answers, available, is_kept, per_step)
    starts = np.cumsum(kept) - kept
    if has_steps:
        target_values = target_values[is_kept]
    found = Sequences(file.path.name, values[is_kept], starts, kept, target_values, has_steps, splits, tuple(labels))
    for name in SPLITS:
        if not len(found.targets_of(name)):
            raise OptionError("data", file.path, f"no row of the split {name} has a target")
    return found


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


def _read_columns(file: ColumnFile, option: str, names: str | Sequence[str]) -> list[Column]:
    """Return the columns with these names."""
    listed = [names] if isinstance(names, str) else list(names)
    if not listed:
        raise OptionError(option, names, "must be the name of an array or a column, or a list of names")
    for name in listed:
        _check_name(file, option, name, names)
    return [file.read(name) for name in listed]


def _check_name(file: ColumnFile, option: str, name: str, value: str | Sequence[str] | None = None) -> None:
    """Check that the file has a column with a name that is the value of an option, or one of its values."""
    if name not in file.names:
        reason = f"{file.path} has no {file.kind} {name}; it has {excerpt(file.names) or 'none'}"
        raise OptionError(option, name if value is None else value, reason)


def _read_optional(file: ColumnFile, option: str, name: str | None) -> Column | None:
    """Return a column that the file may lack. It must exist only if its name is not the default."""
    if name is None or (name == option and name not in file.names):
        return None
    return _read_columns(file, option, name)[0]


def _draw_splits(path: Path, count: int, val_fraction: float, test_fraction: float, seed: int) -> dict[str, np.ndarray]:
    """Return random splits of the rows, none of which is empty."""
    if count < len(SPLITS):
        raise OptionError("data", path, f"has {count} sequences; must have at least {len(SPLITS)}, one for each split")
    generator = torch.Generator().manual_seed(mix_seed(seed, "split"))
    order = torch.randperm(count, generator=generator).numpy()
    val, test = (max(1, round(fraction * count)) for fraction in (val_fraction, test_fraction))
    train = max(1, count - val - test)
    return {name: np.sort(rows) for name, rows in zip(SPLITS, np.split(order, [train, train + val]), strict=True)}
