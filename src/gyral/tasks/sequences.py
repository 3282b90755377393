"""Your own sequences, from a file: classes or real values, per step or per sequence.

An example with real inputs and one class per sequence:

    input       0.12 0.35 0.61 0.48 0.2
    target                            2
"""

import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from gyral.core.errors import OptionError, UserError
from gyral.core.forms import FormError
from gyral.core.inputs import count_of, excerpt
from gyral.core.measures import SPLITS, percent
from gyral.core.options import OneOf, PositiveInt, derived
from gyral.data.batching import IGNORED, Batch
from gyral.data.sequences.corpus import SequencesFile
from gyral.data.sequences.examples import Sequences, SplitExamples
from gyral.data.sequences.schema import Schema
from gyral.models.attention import LastStep
from gyral.models.preprocessing import Preprocessing
from gyral.tasks.base import ModelFactory
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
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import Metrics
from gyral.tasks.objective import Classification, Objective, Regression
from gyral.tasks.rendering import align, describe_value

BALANCE = ("none", "balanced")
HALF_PRECISIONS = ("bf16-true", "16-true")  # Lightning converts the batches, too
MOST_SHARES = 8  # classes whose shares the log has

log = logging.getLogger(__name__)


class SequencesData(ExampleData, SequencesFile):
    """Sequences of a file.

    Args:
        data, inputs, targets, lengths, split, sequence, time: see `gyral.data.sequences.corpus.SequencesFile`.
        per_step, objective, time_gaps: see `gyral.data.sequences.corpus.SequencesFile`.
        val_fraction, test_fraction, split_seed, stratify: see `gyral.data.sequences.corpus.SequencesFile`.
        missing: "refuse", or "mask" for inputs that may be missing. The model reads the mean of the training split in
            their place, and for each input whether it is missing, 1 or 0.
        standardize: whether the inputs have their mean subtracted and are divided by their standard deviation. Both are
            those of the training split, and are saved with the weights. Not with trainer.precision=bf16-true or
            16-true.
        schema: the schema in the checkpoint of a trained task, which needs no file to predict new sequences. None: that
            of the file.
        class_weights: "none", or "balanced" for a loss in which all classes count equally, however rare they are in the
            training split.
        sampling: "none", or "balanced", which draws the training sequences with replacement so that the classes are
            equally frequent.
        batch_size, eval_batch_size: sequences per batch, in training and in evaluation. None: `batch_size`, but at
            least `gyral.tasks.data_module.SMALLEST_EVALUATION`.
        data_seed: seed of the order of the training batches.

    Attributes:
        sequences: the sequences.
        preprocessing: the module through which the inputs pass, or None.

    Raises:
        UserError: an option is out of bounds, or the file cannot be used.
    """

    longest_first = True
    small: ClassVar = {"batch_size": 8, "eval_batch_size": 8}

    schema: Mapping[str, Any] | None = None
    class_weights: Annotated[str, OneOf(BALANCE)] = "none"
    sampling: Annotated[str, OneOf(BALANCE)] = "none"
    eval_batch_size: PositiveInt = derived(default=None)

    def check(self) -> None:
        super().check()
        if self.class_weights == self.sampling == "balanced":
            reason = "must be none with class_weights=balanced, which does the same"
            raise OptionError("sampling", self.sampling, reason)

    def __post_init__(self) -> None:
        self.eval_batch_size = size_of_evaluation(self.batch_size, self.eval_batch_size)
        self.sequences = self.read() if self.schema is None else Sequences.without_rows(_saved(self.schema))
        if self.class_weights == "balanced" and self.sequences.classes is None:
            raise OptionError("class_weights", self.class_weights, "must be none: the targets are not classes")
        if self.sampling == "balanced":
            if self.sequences.classes is None or self.sequences.per_step:
                raise OptionError("sampling", self.sampling, "must be none: there is no class for each sequence")
            own = self.sequences.targets[self.sequences.splits["train"]]
            weights = balanced_weights(self.sequences.schema.counts)
            self.weights = np.where(own == IGNORED, 0, weights[np.where(own == IGNORED, 0, own)])
        self.preprocessing = self._create_preprocessing()
        if self.schema is None:
            log.info("%s", describe(self.sequences, self.batch_size))

    def _create_preprocessing(self) -> Preprocessing | None:
        is_masked, size = self.missing == "mask", self.sequences.input_size or 0
        if not (self.standardize or is_masked):
            return None
        statistics = self.sequences.statistics() if self.schema is None else (np.zeros(size), np.ones(size))
        masked = size - self.time_gaps if is_masked else 0
        return Preprocessing(*statistics, standardize=self.standardize, masked=masked)

    def examples(self, split: str) -> SplitExamples:
        """Return the sequences of a split."""
        return SplitExamples(self.sequences, split)


class SequencesTask(DataTask[SequencesData]):
    """Any data set of sequences with classes or real values as targets.

    Integer inputs in the file are tokens, and integer targets or texts are classes. The baseline is the loss on the
    test split of a predictor that knows only the targets of the training split: the frequencies of the classes, or the
    mean of the real values.

    Args:
        model: makes the model from the sizes of the task.
        **options: see `SequencesData`, and `gyral.tasks.base.Task` for optimizer, scheduler, monitor, mode, overfit,
            prefetch.

    Raises:
        UserError: an option is out of bounds, or the file cannot be used.
    """

    data_class = SequencesData
    measures = OF_CLASSES
    predictor = "gyral.generation.own_sequences.predict_sequences"
    figures: ClassVar = {"confusion": "gyral.figures.confusion.confusion"}
    evaluations: ClassVar = {"confusion": "gyral.figures.confusion.print_confusion"}

    def __init__(self, model: ModelFactory, **options: Any) -> None:
        super().__init__(model, **options)
        self.preprocessing = self.data.preprocessing
        self.majority = {split: _majority(self.data.sequences, split) for split in SPLITS}

    @classmethod
    def arguments(cls, data: SequencesData) -> dict[str, Any]:
        sequences = data.sequences
        weights = balanced_weights(sequences.schema.counts) if data.class_weights == "balanced" else None
        predicted = _objective(sequences, weights)
        preprocessing = data.preprocessing
        return {
            "vocabulary_size": sequences.vocabulary_size,
            "input_size": sequences.input_size if preprocessing is None else preprocessing.output_size,
            "objective": predicted,
            "metrics": _metrics(sequences, predicted),
            "readout": None if sequences.per_step else LastStep,
            "baseline": partial(_baseline, sequences, weights),
            "max_writes": sequences.schema.longest,
        }

    def setup(self, stage: str) -> None:
        precision = str(self.trainer.precision)
        if self.data.standardize and precision in HALF_PRECISIONS:
            reason = f"must be false with trainer.precision={precision}, which rounds the inputs before"
            raise OptionError("task.standardize", True, f"{reason}; trainer.precision=bf16-mixed does not")

    def model_inputs(self, batch: Batch) -> Tensor:
        return batch.inputs if self.preprocessing is None else self.preprocessing(batch.inputs)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the order of the outputs; empty for real targets."""
        return self.data.sequences.schema.labels

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        share = self.majority[split]
        shares = {} if share is None else {MAJORITY.name: share}
        return {**super().data_metrics(split), **shares}

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
        super().check_checkpoint(checkpoint)
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


def _objective(sequences: Sequences, weights: np.ndarray | None) -> Objective:
    """Return the objective, given the weights of the classes, or None."""
    if sequences.classes is None:
        return Regression(sequences.target_size)
    return Classification(sequences.classes) if weights is None else WeightedClassification(weights)


def _baseline(sequences: Sequences, weights: np.ndarray | None, split: str) -> float:
    """Return the loss on a split of what the targets of the training split tell; it is not a number without data."""
    train, found = sequences.targets_of("train"), sequences.targets_of(split)
    if not len(train):
        return math.nan
    if sequences.classes is None:
        return constant_loss(train, found)
    return frequency_loss(train, found, sequences.classes, weights)


def _majority(sequences: Sequences, split: str) -> float | None:
    """Return the share in a split of the most frequent class of training; None for real targets."""
    if sequences.classes is None:
        return None
    train, found = sequences.targets_of("train"), sequences.targets_of(split)
    return float((found == np.bincount(train).argmax()).mean()) if len(train) else math.nan


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
    steps = count_of(longest, "step") if shortest == longest else f"{shortest:,} to {longest:,} steps"
    inputs = f"{sequences.vocabulary_size:,} tokens" if sequences.vocabulary_size else _real(sequences.input_size)
    targets = _classes(sequences) if sequences.classes else _real(sequences.target_size)
    place = "step" if sequences.per_step else "sequence"
    batches = -(-len(sequences.splits["train"]) // batch_size)
    return (
        f"{sequences.name}: {sizes} sequences of {steps}; inputs: {inputs}; targets: {targets} per {place}; "
        f"one pass over the training split takes {count_of(batches, 'step')}"
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
