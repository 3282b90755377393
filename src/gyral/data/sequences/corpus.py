"""Sequences with classes or real values as targets, from a file with named columns.

docs/how-to/data.md describes the files. Rows and steps are counted from 0.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from gyral.core.checks import check_real
from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS
from gyral.core.options import NonNegativeInt, OneOf, Options, Range
from gyral.data.sequences.columns import as_labels
from gyral.data.sequences.csv_columns import INPUTS, CsvFile
from gyral.data.sequences.examples import Sequences
from gyral.data.sequences.files import FORMS, open_columns
from gyral.data.sequences.inputs import names_of, read_columns, read_inputs, read_optional
from gyral.data.sequences.parsing import OBJECTIVES, is_real
from gyral.data.sequences.schema import MISSING, Schema
from gyral.data.sequences.splitting import draw_splits, draw_stratified_splits


class SequencesFile(Options):
    """Sequences in a file.

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
        stratify: whether each class has the same share in all splits that are drawn at random.
        missing: "refuse" or "mask", which allows missing inputs, which are NaN in batches: empty, NaN, null, or texts
            such as NA in a .csv file. Missing real targets are steps or sequences without a target.
        standardize: whether the inputs are measurements that the task standardizes.
        time_gaps: whether the time since the previous step is the last dimension of the inputs, 0 at the first step: in
            seconds for dates. It needs `time`.

    Integers are measurements rather than tokens if one of the last three options is set.

    Raises:
        OptionError: an option is not allowed, or the file has values that cannot be used. The message names the column
            and the row.
        UserError: the package that reads the file is not installed.
    """

    data: str | Path | None = None
    inputs: str | Sequence[str] = "inputs"
    targets: str | Sequence[str] = "targets"
    lengths: str | None = "lengths"
    split: str | None = "split"
    sequence: str | None = None
    time: str | None = None
    per_step: bool | None = None
    objective: Annotated[str, OneOf(OBJECTIVES)] | None = None
    val_fraction: Annotated[float, Range(above=0, below=1)] = 0.1
    test_fraction: Annotated[float, Range(above=0, below=1)] = 0.1
    split_seed: NonNegativeInt = 0
    stratify: bool = False
    missing: Annotated[str, OneOf(MISSING)] = "refuse"
    standardize: bool = False
    time_gaps: bool = False

    def check(self) -> None:
        check_real("test_fraction", self.test_fraction, above=0, below=1 - self.val_fraction)

    def read(self) -> Sequences:
        """Return the sequences.

        Raises:
            UserError: see `SequencesFile`.
        """
        if self.data is None:
            raise OptionError("data", "null", f"must be {FORMS}, with your sequences")
        named = [*names_of("targets", self.targets), self.lengths, self.split, self.sequence, self.time]
        file = open_columns(self.data, {name for name in named if isinstance(name, str)})
        is_masked, per_step = self.missing == "mask", self.per_step
        drawn = self.val_fraction, self.test_fraction, self.split_seed
        found = read_inputs(
            file,
            inputs=self.inputs,
            lengths=self.lengths,
            sequence=self.sequence,
            time=self.time,
            missing=is_masked,
            real=self.standardize or self.time_gaps or is_masked,
            time_gaps=self.time_gaps,
            precise=True,
        )
        answers = read_columns(found.file, "targets", self.targets, is_masked)
        if self.objective != "regression" and len(answers) == 1:
            answers = [as_labels(answers[0], found.file.read(names_of("targets", self.targets)[0], is_masked, True))]
        given = read_optional(found.file, "split", self.split)
        if found.long is not None:
            given = given and found.long.once(given)
            if per_step is None:
                per_step = not all(map(found.long.is_constant, answers))
            if not per_step:
                answers = [found.long.once(column) for column in answers]

        parsed, path, count = found.parser, file.path, len(found.lengths)
        parsed.objective = self.objective
        if given is not None:
            if self.stratify:
                raise OptionError("stratify", True, f"must be false: {given.place} has the splits")
            splits = parsed.splits(given, count)
        elif not self.stratify:
            splits = draw_splits(path, count, *drawn)
        elif self.objective == "regression" or len(answers) > 1:
            raise OptionError("stratify", True, "must be false: the targets are not classes")
        else:
            splits = draw_stratified_splits(path, answers[0], *drawn)
        answers, labels = parsed.typed_targets(answers, found.is_kept, splits)
        values, has_steps = parsed.targets(answers, found.available, found.is_kept, per_step)
        if has_steps:
            values = values[found.is_kept]
        classes = [] if is_real(values) else labels or [str(number) for number in range(int(values.max()) + 1)]
        tokens = not is_real(found.inputs)
        names = names_of("inputs", self.inputs)
        schema = Schema(
            inputs=tuple(file.series if name == INPUTS and isinstance(file, CsvFile) else name for name in names),
            targets=names_of("targets", self.targets),
            lengths=self.lengths,
            sequence=self.sequence,
            time=self.time,
            missing=self.missing,
            time_gaps=self.time_gaps,
            per_step=has_steps,
            vocabulary_size=int(found.inputs.max()) + 1 if tokens else None,
            input_size=None if tokens else found.inputs.shape[1],
            labels=tuple(classes),
            counts=(),
            target_size=values.shape[1] if is_real(values) else None,
            longest=int(found.lengths.max()),
            step_tokens=found.inputs.shape[1] if tokens and found.inputs.ndim > 1 else None,
        )
        read = Sequences(
            name=path.name,
            inputs=found.inputs,
            starts=found.starts,
            lengths=found.lengths,
            targets=values,
            per_step=has_steps,
            splits=splits,
            labels=tuple(labels),
            schema=schema,
            names=found.names,
        )
        for name in SPLITS:
            if not len(read.targets_of(name)):
                raise OptionError("data", path, f"no row of the split {name} has a target")
        if not classes:
            return read
        counts = np.bincount(read.targets_of("train"), minlength=len(classes)).tolist()
        return replace(read, schema=replace(schema, counts=tuple(counts)))


def load(data: str | Path | None, **options: Any) -> Sequences:
    """Return the sequences of a file; see `SequencesFile`."""
    return SequencesFile(data=data, **options).read()
