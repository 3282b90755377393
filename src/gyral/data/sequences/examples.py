"""Sequences with their targets in memory, and the examples of their splits."""

from dataclasses import dataclass

import numpy as np
import torch

from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED, Batch
from gyral.data.sequences.parsing import is_real
from gyral.data.sequences.schema import Schema


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
        labels: the text of each class, if the targets are texts or other integers than 0 to C − 1.
        schema: the names and the sizes of the inputs and targets.
        names: the name of each sequence, if the file has one step in each row; else empty.
    """

    name: str
    inputs: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    targets: np.ndarray
    per_step: bool
    splits: dict[str, np.ndarray]
    labels: tuple[str, ...]
    schema: Schema
    names: tuple[str, ...] = ()

    @classmethod
    def without_rows(cls, schema: Schema) -> "Sequences":
        """Return no sequences, of which only the schema is known."""
        none = np.zeros(0, dtype=np.int64)
        inputs, targets = (
            none if size is None else np.zeros((0, size), dtype=np.float32)
            for size in (schema.input_size, schema.target_size)
        )
        splits = dict.fromkeys(SPLITS, none)
        return cls("", inputs, none, none, targets, schema.per_step, splits, schema.labels, schema)

    @property
    def vocabulary_size(self) -> int | None:
        """One more than the largest token, None for real inputs."""
        return self.schema.vocabulary_size

    @property
    def input_size(self) -> int | None:
        """X, None for tokens."""
        return self.schema.input_size

    @property
    def classes(self) -> int | None:
        """Number of classes, None for real targets."""
        return len(self.schema.labels) or None

    @property
    def target_size(self) -> int:
        """Y, of real targets."""
        assert self.schema.target_size is not None, "the targets are classes"
        return self.schema.target_size

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the standard deviation of each real input over the training split, both (X,).

        Missing values do not count. The standard deviation of a constant input is 1.

        Raises:
            OptionError: an input has no value in the training split.
        """
        steps = self.inputs[self._steps(self.splits["train"])].astype(np.float64)
        empty = np.isnan(steps).all(axis=0)
        if empty.any():
            reason = f"value {int(empty.argmax())} of the steps is missing in the whole training split"
            raise OptionError("data", self.name, reason)
        mean, deviation = np.nanmean(steps, axis=0), np.nanstd(steps, axis=0)
        # rounding leaves a constant input a deviation that is not quite 0
        return mean, np.where(deviation > 1e-7 * np.abs(mean), deviation, 1.0)

    def targets_of(self, split: str) -> np.ndarray:
        """Return all targets of a split one after another: classes (n,), or real values (n, Y), of which none lacks."""
        rows = self.splits[split]
        targets = self.targets[self._steps(rows)] if self.per_step else self.targets[rows]
        return targets[~np.isnan(targets).any(axis=1) if is_real(targets) else targets != IGNORED]

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
