"""New sequences for a trained model: inputs of a file, an array or a frame, without targets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.sequences.columns import Column, ColumnFile
from gyral.data.sequences.csv_columns import CsvFile
from gyral.data.sequences.examples import Sequences
from gyral.data.sequences.files import open_columns
from gyral.data.sequences.inputs import read_inputs
from gyral.data.sequences.parsing import is_real
from gyral.data.sequences.schema import Schema

SPLIT = "test"  # of all new sequences


def read_unlabelled(data: Any, schema: Schema) -> Sequences:
    """Return the sequences of a file or of values in memory, without targets, all of them in the split "test".

    Args:
        data: one of

            * a path of a file that `gyral.data.sequences.corpus.load` reads, with the columns of the inputs;
            * a `pandas.DataFrame`, which is read as the .csv file that it writes;
            * a dictionary of arrays by the names of the inputs, as in an .npz file;
            * an array (N, T) or (N, T, X) of all sequences, whose last dimension has the inputs in the order of the
              schema, or a list of arrays (T,) or (T, X), one for each sequence.
        schema: the names and the sizes of the inputs of the trained model.

    Raises:
        OptionError: the data has other inputs, or values that cannot be used.
    """
    file = _open(data, schema)
    found = read_inputs(
        file,
        inputs=schema.inputs,
        lengths=schema.lengths,
        sequence=schema.sequence,
        time=schema.time,
        missing=schema.missing == "mask",
        real=schema.is_real,
        time_gaps=schema.time_gaps,
    )
    place = f"inputs {', '.join(schema.inputs)}"
    if not schema.is_real:
        if is_real(found.inputs):
            raise OptionError("data", file.path, f"{place}: are real numbers; the model was trained on tokens")
        assert schema.vocabulary_size is not None
        if found.inputs.max() >= schema.vocabulary_size:
            reason = (
                f"have the token {found.inputs.max()}; the model was trained on tokens below {schema.vocabulary_size}"
            )
            raise OptionError("data", file.path, f"{place}: {reason}")
    elif found.inputs.shape[1] != schema.input_size:
        sizes = (size - schema.time_gaps for size in (found.inputs.shape[1], schema.input_size or 0))
        reason = "have {} values per step; the model was trained on {}".format(*sizes)
        raise OptionError("data", file.path, f"{place}: {reason}")
    count = len(found.inputs) if schema.per_step else len(found.lengths)
    size = schema.target_size
    targets = np.full(count, IGNORED) if size is None else np.full((count, size), np.nan, dtype=np.float32)
    return Sequences(
        name=file.path.name,
        inputs=found.inputs,
        starts=found.starts,
        lengths=found.lengths,
        targets=targets,
        per_step=schema.per_step,
        splits={SPLIT: np.arange(len(found.lengths))},
        labels=schema.labels,
        schema=schema,
        names=found.names,
    )


def _open(data: Any, schema: Schema) -> ColumnFile:
    if isinstance(data, str | Path):
        return open_columns(data, {*schema.targets, *filter(None, (schema.lengths, schema.sequence, schema.time))})
    if hasattr(data, "to_csv"):
        return CsvFile(Path("frame"), schema.targets, text=data.to_csv(index=False))
    if isinstance(data, Mapping):
        return ArraysFile({str(name): _array(values) for name, values in data.items()})
    return ArraysFile(_by_name(data, schema))


def _by_name(data: Any, schema: Schema) -> dict[str, "np.ndarray | list[np.ndarray]"]:
    """Return sequences without a name by the names of the inputs, whose last dimension they have."""
    array = _array(data)
    if len(schema.inputs) == 1:
        return {schema.inputs[0]: array}
    rows = list(array)
    for number, row in enumerate(rows):
        if row.ndim != 2 or row.shape[1] != len(schema.inputs):
            reason = f"has the shape {row.shape}; must be (steps, {len(schema.inputs)}), for {', '.join(schema.inputs)}"
            raise OptionError("data", "array", f"row {number}: {reason}")
    return {name: [row[:, place] for row in rows] for place, name in enumerate(schema.inputs)}


def _array(values: Any) -> "np.ndarray | list[np.ndarray]":
    """Return values as an array, or as a list of arrays if the rows have different lengths."""
    try:
        if not isinstance(values, Sequence) or isinstance(values, str):
            return np.asarray(values)
        rows = [np.asarray(row) for row in values]
    except (ValueError, TypeError) as error:
        raise OptionError("data", "array", f"must have numbers: {error}") from None
    is_even = len({row.shape for row in rows}) == 1
    return np.stack(rows) if is_even else rows


class ArraysFile:
    """Arrays in memory, see `gyral.data.sequences.columns.ColumnFile`.

    Args:
        arrays: an array (N,), (N, T) or (N, T, X), or a list of arrays (T,) or (T, X), by their names.
    """

    kind = "array"
    path = Path("array")

    def __init__(self, arrays: "Mapping[str, np.ndarray | list[np.ndarray]]") -> None:
        self._arrays = arrays
        self.names = list(arrays)

    def read(self, name: str, missing: bool = False) -> Column:
        """Return an array as a column."""
        array, place = self._arrays[name], f"array {name}"
        if isinstance(array, np.ndarray):
            if array.ndim == 0:
                raise OptionError("data", self.path, f"{place}: is a single value; the first dimension must be rows")
            if array.ndim == 1:
                return Column.of_scalars(place, array)
            lengths = np.full(len(array), array.shape[1])
            return Column(place, array.reshape(-1, *array.shape[2:]), lengths)
        for number, row in enumerate(array):
            if row.ndim not in (1, 2) or row.shape[1:] != array[0].shape[1:]:
                reason = f"has the shape {row.shape}; must be (steps,) or (steps, X), as row 0"
                raise OptionError("data", self.path, f"{place}, row {number}: {reason}")
        return Column(place, np.concatenate(array), np.array([len(row) for row in array]))
