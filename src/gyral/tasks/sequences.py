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

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.core.forms import FormError
from gyral.core.inputs import excerpt
from gyral.core.measures import SPLITS, percent
from gyral.data.batching import IGNORED, Batch
from gyral.data.sequences import corpus
from gyral.data.sequences.examples import Sequences, SplitExamples
from gyral.data.sequences.schema import Schema
from gyral.models.attention import LastStep
from gyral.models.preprocessing import Preprocessing
from gyral.tasks.base import ModelFactory, SequenceTask
from gyral.tasks.baselines import constant_loss, frequency_loss
from gyral.tasks.class_metrics import (
    MAJORITY,
    MOST_CLASSES,
    MOST_SCORES,
    OF_CLASSES,
    ClassMetrics,
    WeightedClassification,
    balanced_weights,
)
from gyral.tasks.data_module import ExampleData, size_of_evaluation
from gyral.tasks.metrics import Metrics
from gyral.tasks.objective import Classification, Objective, Regression
from gyral.tasks.rendering import align, describe_value

BALANCE = ("none", "balanced")
MOST_SHARES = 8  # classes whose shares the log has

log = logging.getLogger(__name__)


class SequencesData(ExampleData):
    """Sequences of a file.

    Args:
        sequences: the sequences.
        batch_size, eval_batch_size: sequences per batch, in training and in evaluation. None: `batch_size`, but at
            least `gyral.tasks.data_module.SMALLEST_EVALUATION`.
        data_seed: seed of the order of the training batches.
        sampling: "none", or "balanced", which draws the training sequences with replacement so that the classes are
            equally frequent.

    Raises:
        OptionError: an option is out of bounds.
    """

    longest_first = True

    def __init__(
        self,
        sequences: Sequences,
        *,
        batch_size: int,
        data_seed: int,
        eval_batch_size: int | None = None,
        sampling: str = "none",
    ) -> None:
        size = size_of_evaluation(check_integer("batch_size", batch_size), eval_batch_size)
        super().__init__(batch_size=batch_size, eval_batch_size=size, data_seed=data_seed)
        self.sequences = sequences
        if check_choice("sampling", sampling, BALANCE) == "balanced":
            if sequences.classes is None or sequences.per_step:
                raise OptionError("sampling", sampling, "must be none: there is no class for each sequence")
            own = sequences.targets[sequences.splits["train"]]
            weights = balanced_weights(sequences.schema.counts)
            self.weights = np.where(own == IGNORED, 0, weights[own])

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
        class_weights: "none", or "balanced" for a loss in which all classes count equally, however rare they are in the
            training split.
        batch_size, eval_batch_size, data_seed, sampling: see `SequencesData`.
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds, or the file cannot be used.
    """

    measures = OF_CLASSES
    predictor = "gyral.generation.own_sequences.predict_sequences"
    figures: ClassVar = {"confusion": "gyral.figures.confusion.confusion"}
    evaluations: ClassVar = {"confusion": "gyral.figures.confusion.print_confusion"}
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
        class_weights: str = "none",
        sampling: str = "none",
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
        if check_choice("class_weights", class_weights, BALANCE) == "balanced":
            if sequences.classes is None:
                raise OptionError("class_weights", class_weights, "must be none: the targets are not classes")
            if sampling == "balanced":
                raise OptionError("sampling", sampling, "must be none with class_weights=balanced, which does the same")
        predicted, baseline, self.majority = _objective(sequences, class_weights)
        preprocessing = None
        if standardize or missing == "mask":
            size = sequences.input_size or 0
            statistics = sequences.statistics() if has_data else (np.zeros(size), np.ones(size))
            masked = size - time_gaps if missing == "mask" else 0
            preprocessing = Preprocessing(*statistics, standardize=standardize, masked=masked)
        super().__init__(
            model,
            SequencesData(
                sequences,
                batch_size=batch_size,
                eval_batch_size=eval_batch_size,
                data_seed=data_seed,
                sampling=sampling,
            ),
            vocabulary_size=sequences.vocabulary_size,
            input_size=sequences.input_size if preprocessing is None else preprocessing.output_size,
            objective=predicted,
            metrics=_metrics(sequences, predicted),
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

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the order of the outputs; empty for real targets."""
        return self.data.sequences.schema.labels

    def data_metrics(self) -> dict[str, float]:
        shares = {} if self.majority is None else {MAJORITY.name: self.majority}
        return {**super().data_metrics(), **shares}

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

    @classmethod
    def described_data(cls, checkpoint: dict[str, Any]) -> dict[str, Any]:
        return {"schema": checkpoint["schema"]} if "schema" in checkpoint else {}  # older versions had none

    def check_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # classes that are numbers have no labels, and neither had older versions
        own = list(self.class_names)
        saved = checkpoint.get("labels") or [str(number) for number in range(len(own))]
        if saved != own:
            reason = f"{self.data.sequences.name}: the training split has the labels {excerpt(own) or 'none'}"
            raise UserError(f"{reason}; those of the checkpoint are {excerpt(map(str, saved)) or 'none'}")
        if "schema" in checkpoint:  # older versions had none
            trained, here = Schema.of_plain(checkpoint["schema"]).inputs, self.data.sequences.schema.inputs
            if trained != here:
                reason = f"{self.data.sequences.name}: the inputs are {excerpt(here)}"
                raise UserError(f"{reason}; those of the checkpoint are {excerpt(trained)}")


def _objective(sequences: Sequences, class_weights: str) -> tuple[Objective, float, float | None]:
    """Return the objective, the baseline, and the share in the test of the most frequent class of training."""
    train, test = sequences.targets_of("train"), sequences.targets_of("test")
    has_data = len(train) > 0
    if sequences.classes is None:
        return Regression(sequences.target_size), constant_loss(train, test) if has_data else math.nan, None
    weights = balanced_weights(sequences.schema.counts) if class_weights == "balanced" else None
    objective = Classification(sequences.classes) if weights is None else WeightedClassification(weights)
    if not has_data:
        return objective, math.nan, math.nan
    majority = float((test == np.bincount(train).argmax()).mean())
    return objective, frequency_loss(train, test, sequences.classes, weights), majority


def _metrics(sequences: Sequences, objective: Objective) -> Metrics | None:
    """Return the metrics of classes; None for those of the objective."""
    if not isinstance(objective, Classification) or objective.output_size > MOST_CLASSES:
        return None
    counts = np.array(sequences.schema.counts)
    largest = max(len(sequences.targets_of(split)) for split in SPLITS)
    return ClassMetrics(
        objective,
        per_step=sequences.per_step,
        positive=int(counts.argmin()) if len(counts) == 2 else None,
        ranked=largest * objective.output_size <= MOST_SCORES,
    )


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
    targets = _classes(sequences) if sequences.classes else _real(sequences.target_size)
    place = "step" if sequences.per_step else "sequence"
    batches = -(-len(sequences.splits["train"]) // batch_size)
    return (
        f"{sequences.name}: {sizes} sequences of {steps} steps; inputs: {inputs}; targets: {targets} per {place}; "
        f"one pass over the training split takes {batches:,} steps"
    )


def _classes(sequences: Sequences) -> str:
    """Return the number of classes, with the shares of the most frequent ones in the training split."""
    names = sequences.schema.labels
    counts = np.array(sequences.schema.counts)
    order = np.argsort(-counts, kind="stable")[:MOST_SHARES]
    shares = [f"{excerpt([names[place]], 40)} {percent(counts[place] / counts.sum(), 1)}" for place in order]
    shown = ", ".join([*shares, "…"] if len(names) > MOST_SHARES else shares)
    return f"{len(names):,} classes ({shown})"


def _real(size: int | None) -> str:
    return "a real value" if size == 1 else f"{size} real values"
