"""Your own sequences, from a file: classes or real values, per step or per sequence.

An example with real inputs and one class per sequence:

    input       0.12 0.35 0.61 0.48 0.2
    target                            2
"""

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError, UserError
from gyral.core.forms import FormError
from gyral.core.inputs import excerpt
from gyral.data.batching import IGNORED, Batch
from gyral.data.sequences import corpus
from gyral.data.sequences.examples import Sequences, SplitExamples
from gyral.data.sequences.schema import Schema
from gyral.models.attention import LastStep
from gyral.models.preprocessing import Preprocessing
from gyral.tasks.base import ModelFactory, SequenceTask
from gyral.tasks.baselines import constant_loss, frequency_loss
from gyral.tasks.data_module import ExampleData, size_of_evaluation
from gyral.tasks.objective import Classification, Objective, Regression
from gyral.tasks.rendering import align, describe_value

log = logging.getLogger(__name__)


class SequencesData(ExampleData):
    """Sequences of a file.

    Args:
        sequences: the sequences.
        batch_size, eval_batch_size: sequences per batch, in training and in evaluation. None: `batch_size`, but at
            least `gyral.tasks.data_module.SMALLEST_EVALUATION`.
        data_seed: seed of the order of the training batches.

    Raises:
        OptionError: an option is out of bounds.
    """

    longest_first = True

    def __init__(
        self, sequences: Sequences, *, batch_size: int, data_seed: int, eval_batch_size: int | None = None
    ) -> None:
        size = size_of_evaluation(check_integer("batch_size", batch_size), eval_batch_size)
        super().__init__(batch_size=batch_size, eval_batch_size=size, data_seed=data_seed)
        self.sequences = sequences

    def examples(self, split: str) -> SplitExamples:
        """Return the sequences of a split."""
        return SplitExamples(self.sequences, split)


class SequencesTask(SequenceTask[SequencesData]):
    """Any data set of sequences with classes or real values as targets.

    Integer inputs in the file are tokens, and integer targets or texts are classes. The baseline is the loss on the
    test split of a predictor that knows only the targets of the training split: the frequencies of the classes, or the
    mean of the real values.

    Args:
        model: makes the model from the sizes of the task.
        data, inputs, targets, lengths, split, sequence, time: see `gyral.data.sequences.corpus.load`.
        per_step, objective: see `gyral.data.sequences.corpus.load`.
        val_fraction, test_fraction, split_seed, stratify: see `gyral.data.sequences.corpus.load`.
        missing: "refuse", or "mask" for inputs that may be missing. The model reads the mean of the training split in
            their place, and for each input whether it is missing, 1 or 0.
        standardize: whether the inputs have their mean subtracted and are divided by their standard deviation. Both are
            those of the training split, and are saved with the weights.
        time_gaps: see `gyral.data.sequences.corpus.load`.
        schema: the schema in the checkpoint of a trained task, which needs no file to predict new sequences. None: that
            of the file.
        batch_size, eval_batch_size, data_seed: see `SequencesData`.
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds, or the file cannot be used.
    """

    small: ClassVar = {"batch_size": 8, "eval_batch_size": 8}

    def __init__(
        self,
        model: ModelFactory,
        *,
        data: str | Path | None = None,
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
        stratify: bool = False,
        missing: str = "refuse",
        standardize: bool = False,
        time_gaps: bool = False,
        schema: Mapping[str, Any] | None = None,
        batch_size: int = 32,
        eval_batch_size: int | None = None,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        if schema is not None:
            sequences = Sequences.without_rows(_saved(schema))
        else:
            sequences = corpus.load(
                data,
                inputs=inputs,
                targets=targets,
                lengths=lengths,
                split=split,
                sequence=sequence,
                time=time,
                per_step=per_step,
                objective=objective,
                val_fraction=val_fraction,
                test_fraction=test_fraction,
                split_seed=split_seed,
                stratify=stratify,
                missing=missing,
                standardize=standardize,
                time_gaps=time_gaps,
            )
        has_data = schema is None
        predicted: Objective
        train, test = sequences.targets_of("train"), sequences.targets_of("test")
        baseline = math.nan
        if sequences.classes is None:
            predicted = Regression(sequences.target_size)
            baseline = constant_loss(train, test) if has_data else math.nan
        else:
            predicted = Classification(sequences.classes)
            baseline = frequency_loss(train, test, sequences.classes) if has_data else math.nan
        preprocessing = None
        if standardize or missing == "mask":
            size = sequences.input_size or 0
            statistics = sequences.statistics() if has_data else (np.zeros(size), np.ones(size))
            masked = size - time_gaps if missing == "mask" else 0
            preprocessing = Preprocessing(*statistics, standardize=standardize, masked=masked)
        super().__init__(
            model,
            SequencesData(sequences, batch_size=batch_size, eval_batch_size=eval_batch_size, data_seed=data_seed),
            vocabulary_size=sequences.vocabulary_size,
            input_size=sequences.input_size if preprocessing is None else preprocessing.output_size,
            objective=predicted,
            readout=None if sequences.per_step else LastStep,
            baseline=baseline,
            max_writes=sequences.schema.longest,
            **options,
        )
        self.preprocessing = preprocessing
        if has_data:
            log.info("%s", describe(sequences, batch_size))

    def model_inputs(self, batch: Batch) -> Tensor:
        return batch.inputs if self.preprocessing is None else self.preprocessing(batch.inputs)

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        length = batch.inputs.shape[1] if batch.lengths is None else int(batch.lengths[row])
        lines = {"input": [describe_value(step) for step in batch.inputs[row, :length].tolist()]}
        for name, values in (("target", batch.targets[row].tolist()), ("prediction", predicted[row].tolist())):
            shown = values[:length] if self.data.sequences.per_step else [values]
            lines[name] = ["·" if value == IGNORED else self._describe(value) for value in shown]
        return align(lines)

    def _describe(self, target: Any) -> str:
        labels = self.data.sequences.labels
        return labels[target] if labels else describe_value(target)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["labels"] = list(self.data.sequences.labels)
        checkpoint["schema"] = self.data.sequences.schema.plain()

    def check_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        saved, own = checkpoint.get("labels", []), list(self.data.sequences.labels)  # older versions had no labels
        if saved != own:
            reason = f"{self.data.sequences.name}: the training split has the labels {excerpt(own) or 'none'}"
            raise UserError(f"{reason}; those of the checkpoint are {excerpt(map(str, saved)) or 'none'}")
        if "schema" in checkpoint:  # older versions had none
            trained, here = Schema.of_plain(checkpoint["schema"]).inputs, self.data.sequences.schema.inputs
            if trained != here:
                reason = f"{self.data.sequences.name}: the inputs are {excerpt(here)}"
                raise UserError(f"{reason}; those of the checkpoint are {excerpt(trained)}")


def _saved(schema: Any) -> Schema:
    try:
        return Schema.of_plain(schema)
    except FormError as error:
        raise OptionError("schema", excerpt([str(schema)]), str(error)) from None


def describe(sequences: Sequences, batch_size: int) -> str:
    """Return a description of a file for the log."""
    sizes = ", ".join(f"{len(rows):,} {split}" for split, rows in sequences.splits.items())
    shortest, longest = sequences.lengths.min(), sequences.lengths.max()
    steps = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
    inputs = f"{sequences.vocabulary_size:,} tokens" if sequences.vocabulary_size else _real(sequences.input_size)
    targets = f"{sequences.classes:,} classes" if sequences.classes else _real(sequences.target_size)
    place = "step" if sequences.per_step else "sequence"
    batches = -(-len(sequences.splits["train"]) // batch_size)
    return (
        f"{sequences.name}: {sizes} sequences of {steps} steps; inputs: {inputs}; targets: {targets} per {place}; "
        f"one pass over the training split takes {batches:,} steps"
    )


def _real(size: int | None) -> str:
    return "a real value" if size == 1 else f"{size} real values"
