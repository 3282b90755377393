"""New sequences for a trained model: inputs of a file, with or without targets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt
from gyral.data.batching import IGNORED
from gyral.data.sequences.columns import Column, ColumnFile
from gyral.data.sequences.examples import Sequences
from gyral.data.sequences.inputs import Inputs, read_inputs
from gyral.data.sequences.parsing import Parser, is_real
from gyral.data.sequences.schema import Schema

SPLIT = "test"  # of all new sequences


class New(NamedTuple):
    """New sequences.

    Attributes:
        sequences: the sequences, all of them in the split "test".
        is_labelled: whether the file has targets.
        times: the time of each step as the file has it, (S,), if there is a column of them.
    """

    sequences: Sequences
    is_labelled: bool
    times: np.ndarray | None


def read_new(file: ColumnFile, schema: Schema) -> New:
    """Return the sequences of a file.

    Args:
        file: the file, with the columns of the inputs. Without the columns of the targets, no target is there.
        schema: the names and the sizes of the inputs and targets of the trained model.

    Raises:
        OptionError: the file has other columns, or values that cannot be used.
    """
    if file.kind == "array" and schema.sequence not in file.names:  # a row of the arrays has a whole sequence
        schema = replace(schema, sequence=None, time=None)
    _check_columns(file, schema)
    found = read_inputs(
        file,
        inputs=schema.inputs,
        lengths=schema.lengths if schema.lengths in file.names else None,
        sequence=schema.sequence,
        time=schema.time,
        missing=schema.missing == "mask",
        real=schema.is_real,
        time_gaps=schema.time_gaps,
    )
    _check_inputs(found, schema)
    count, size = len(found.inputs) if schema.per_step else len(found.lengths), schema.target_size
    targets = np.full(count, IGNORED) if size is None else np.full((count, size), np.nan, dtype=np.float32)
    is_labelled = bool(set(schema.targets) & set(file.names))
    if is_labelled:
        targets = _read_targets(found, schema)
    sequences = Sequences(
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
    times = None if found.long is None or schema.time is None else found.long.read(schema.time).values[found.is_kept]
    return New(sequences, is_labelled, times)


def _check_columns(file: ColumnFile, schema: Schema) -> None:
    """Check that a file has the columns of the inputs and, if it has one of the targets, all of them."""
    needed = dict.fromkeys(schema.inputs, "an input")
    needed |= {name: why for name, why in ((schema.sequence, "the sequence"), (schema.time, "the time")) if name}
    if set(schema.targets) & set(file.names):
        needed |= dict.fromkeys(schema.targets, "a target")
    for name, meaning in needed.items():
        if name not in file.names:
            reason = f"has no {file.kind} {name}, {meaning} of the run; it has {excerpt(file.names) or 'none'}"
            raise OptionError("data", file.path, reason)


def _check_inputs(found: Inputs, schema: Schema) -> None:
    """Check that inputs are of the kind and the size of those of the trained model."""
    place, values, path = f"inputs {', '.join(schema.inputs)}", found.inputs, found.file.path
    if not schema.is_real:
        if is_real(values):
            raise OptionError("data", path, f"{place}: are real numbers; the model was trained on tokens")
        assert schema.vocabulary_size is not None
        if values.max() >= schema.vocabulary_size:
            reason = f"have the token {values.max()}; the model was trained on tokens below {schema.vocabulary_size}"
            raise OptionError("data", path, f"{place}: {reason}")
    elif values.shape[1] != schema.input_size:
        sizes = (size - schema.time_gaps for size in (values.shape[1], schema.input_size or 0))
        raise OptionError(
            "data", path, "{}: have {} values per step; the model was trained on {}".format(place, *sizes)
        )


def _read_targets(found: Inputs, schema: Schema) -> np.ndarray:
    """Return the targets of the steps that are kept, or of the sequences; `IGNORED` or NaN where there is none."""
    columns = [found.file.read(name, True) for name in schema.targets]
    if schema.target_size is None:
        columns = [_with_labels(columns[0], found.file.read(schema.targets[0], True, True), schema.labels)]
    if found.long is not None and not schema.per_step:
        columns = [found.long.once(column) for column in columns]
    parser = Parser(found.file.path, "regression", missing=True)
    if schema.target_size is None:
        values = _classes(columns[0], schema.labels, found)
        expected = found.available if schema.per_step else np.ones(len(found.available), dtype=np.int64)
        if not np.array_equal(columns[0].lengths, expected):
            what = "each step" if schema.per_step else "each sequence"
            raise OptionError("data", found.file.path, f"{columns[0].place}: must have one class for {what}")
    else:
        columns, _ = parser.typed_targets(columns, found.is_kept, {"train": np.arange(len(found.lengths))})
        values, _ = parser.targets(columns, found.available, found.is_kept, schema.per_step)
        if values.shape[1] != schema.target_size:
            reason = f"have {values.shape[1]} values; the model was trained on {schema.target_size}"
            raise OptionError("data", found.file.path, f"targets {', '.join(schema.targets)}: {reason}")
    return values[found.is_kept] if schema.per_step else values


def _with_labels(column: Column, written: Column, labels: Sequence[str]) -> Column:
    """Return a column as texts, "" where it is empty; a class such as None or 1.0 is one however the column is read.

    Args:
        column: the column, with texts or whole numbers.
        written: the same column, which was read with `texts`.
        labels: the classes.
    """
    values = column.values
    if values.dtype.kind in "bf":
        whole = np.isfinite(values) & (values == np.trunc(values))
        integers = np.where(whole, values, 0).astype(np.int64).astype(str)
        texts = np.where(np.isnan(values), "", np.where(whole, integers, values.astype(str)))
    elif values.dtype.kind == "S":
        texts = np.char.decode(values, "utf-8", "replace")
    else:
        texts = np.where(values == None, "", values).astype(str)  # noqa: E711  # of each entry
    if written.values.dtype.kind == "U":
        texts = np.where(np.isin(written.values, labels), written.values, texts)
    return replace(column, values=texts)


def _classes(column: Column, labels: Sequence[str], found: Inputs) -> np.ndarray:
    """Return the classes of the entries of a column of texts; `IGNORED` for an empty one."""
    texts = column.values
    if texts.ndim > 1:
        raise OptionError("data", found.file.path, f"{column.place}: must have one class for each step or sequence")
    index = {label: number for number, label in enumerate(labels)} | {"": IGNORED}
    if str(IGNORED) not in labels:
        index[str(IGNORED)] = IGNORED
    known, inverse = np.unique(texts, return_inverse=True)
    numbers = np.array([index.get(str(text), -1) for text in known], dtype=np.int64)[inverse]
    unknown = numbers == -1
    if unknown.any():
        place = int(unknown.argmax())
        reason = f"{excerpt([str(texts[place])])}; not a class of the run, which has {excerpt(labels)}"
        raise OptionError("data", found.file.path, f"{column.locate(place)}: {reason}")
    return numbers
