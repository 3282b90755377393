"""Base class of tasks on conditional probabilities of concepts, with their data and measures."""

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gyral.applications.boxes.data.pairs import ConceptBatch, LabelledPairs, PairBatches
from gyral.applications.boxes.tasks.concept_pairs import (
    MARGIN,
    ConceptData,
    ConceptTask,
    LabelledScores,
    Probability,
    ProbabilityMetrics,
    mean_probability_loss,
)
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS, Measure
from gyral.data.batching import DrawnBatches, RepeatedBatches, mix_seed

SHARE = 10  # 1 / share of the pairs in validation, and in test, if their sizes are not given


class ConditionalData(ConceptData):
    """Pairs of concepts with conditional probabilities. A subclass makes them in `__post_init__`.

    Args:
        batch_size, eval_batch_size: pairs per batch, in training and in evaluation.
        data_seed: seed of the training batches.

    Attributes:
        splits: the pairs of "train", "val" and "test".
    """

    splits: Mapping[str, LabelledPairs] = field(init=False)

    def loader(self, split: str) -> PairBatches:
        """Return the pairs of a split in order."""
        return self.splits[check_choice("split", split, SPLITS)].batches(self.eval_batch_size)

    def stream(self) -> RepeatedBatches[ConceptBatch]:
        """Return the training stream: random pairs."""
        train = self.splits["train"]

        def draw(generator: np.random.Generator, index: int) -> ConceptBatch:
            return train.batch(generator.integers(len(train.pairs), size=self.batch_size))

        batches = DrawnBatches(draw, seed=self.data_seed, name="train", length=self.steps())
        return RepeatedBatches(batches, self.steps())


def draw_splits(
    labelled: LabelledPairs, sizes: Mapping[str, int | None], seed: int, sampled_pairs: int | None = None
) -> dict[str, LabelledPairs]:
    """Return splits of pairs, drawn at random; "train" has what the others leave.

    Args:
        labelled: the pairs.
        sizes: pairs of each split but "train". None: a tenth.
        seed: seed of the draw.
        sampled_pairs: pairs of all splits together. None: all.

    Raises:
        OptionError: a size is out of bounds, or there are too few pairs.
    """
    found = len(labelled.pairs)
    count = found if sampled_pairs is None else check_integer("sampled_pairs", sampled_pairs)
    if count > found:
        raise OptionError("sampled_pairs", sampled_pairs, f"must be at most {found:,}, the number of pairs")
    held_out = {
        name: count // SHARE if size is None else check_integer(f"{name}_size", size) for name, size in sizes.items()
    }
    if sum(held_out.values()) >= count or 0 in held_out.values():
        name = next((name for name, size in sizes.items() if size is not None), next(iter(sizes)))
        raise OptionError(f"{name}_size", sizes[name], f"{count:,} pairs are too few for {', '.join(sizes)} and train")
    order = np.random.default_rng(mix_seed(seed, "split")).permutation(found)[:count]
    parts = np.split(order, np.cumsum([*held_out.values()]))
    rows = zip((*held_out, "train"), parts, strict=True)
    return {split: LabelledPairs(labelled.pairs[own], labelled.targets[own]) for split, own in rows}


class ConditionalMetrics(ProbabilityMetrics):
    """Loss, mean Kullback-Leibler divergence of predicted from true probabilities in nats, and two correlations."""

    names = (*ProbabilityMetrics.names, "kl", "pearson", "spearman")

    def __init__(self) -> None:
        super().__init__()
        self.pairs = LabelledScores()

    def update(self, outputs: Tensor, batch: ConceptBatch, loss: Tensor) -> None:
        super().update(outputs, batch, loss)
        self.pairs.update(outputs, batch.targets)

    def compute(self) -> dict[str, Tensor]:
        values: dict[str, Any] = super().compute()
        scores, targets = values.pop("pairs")
        predicted, targets = scores.clamp(max=0).exp() * (1 - MARGIN), targets.double()
        values["kl"] = (divergence(targets, predicted) + divergence(1 - targets, 1 - predicted)).mean()
        values["pearson"] = torch.corrcoef(torch.stack((predicted, targets)))[0, 1]
        values["spearman"] = torch.corrcoef(torch.stack((ranks(predicted), ranks(targets))))[0, 1]
        return {name: values[name].float() for name in self.names}


def divergence(true: Tensor, predicted: Tensor) -> Tensor:
    """Return p log(p / q) of each pair of probabilities, 0 where p is 0."""
    return torch.xlogy(true, true) - torch.xlogy(true, predicted)


def ranks(values: Tensor) -> Tensor:
    """Return the ranks (n,) of values, from 1; equal values have their mean rank."""
    _, places, counts = values.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[places]


class ConditionalTask(ConceptTask[ConditionalData]):
    """Prediction of conditional probabilities of concepts; base class.

    The baseline is the loss on the test split of the mean of the training split.

    Args:
        model: makes the model from the number of concepts.
        **options: those of `data_class`, a subclass of `ConditionalData`, and see `gyral.tasks.base.Task`: optimizer,
            scheduler, monitor, mode, overfit, prefetch.
    """

    measures = (
        Measure("kl", "Kullback-Leibler divergence", digits=4, higher_is_better=False),
        Measure("pearson", "Pearson correlation", digits=4),
        Measure("spearman", "Spearman correlation", digits=4),
    )
    figures: ClassVar = {
        **ConceptTask.figures,
        "conditionals": "gyral.applications.boxes.probability_figures.conditionals",
    }

    @classmethod
    def arguments(cls, data: ConditionalData) -> dict[str, Any]:
        return {
            "sizes": {"concepts": len(data.names)},
            "objective": Probability(),
            "baseline": partial(_baseline, data),
            "metrics": ConditionalMetrics(),
        }

    def render(self, batch: ConceptBatch, predicted: Tensor, row: int = 0) -> str:
        first, second = self.name_pair(batch, row)
        target, prediction = (f"{100 * values[row].item():.1f}" for values in (batch.targets, predicted))
        return f"input       {first}, given {second}\ntarget      {target}\nprediction  {prediction}"


def _baseline(data: ConditionalData, split: str) -> float:
    return mean_probability_loss(data.splits["train"].targets, data.splits[split].targets)
