"""Base class of tasks on conditional probabilities of concepts, with their data and measures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gyral.applications.boxes.data.pairs import ConceptBatch, LabelledPairs, PairBatches
from gyral.applications.boxes.tasks.concept_pairs import (
    MARGIN,
    ConceptTask,
    LabelledScores,
    Probability,
    ProbabilityMetrics,
    mean_probability_loss,
)
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import Measure
from gyral.data.batching import DrawnBatches, RepeatedBatches, mix_seed
from gyral.data.splits import SPLITS
from gyral.tasks.data_module import SplitData

SHARE = 10  # validation and test have one of this many pairs each, if their sizes are not given


class ConditionalData(SplitData):
    """Pairs of concepts with conditional probabilities.

    Args:
        splits: the pairs of "train", "val" and "test".
        batch_size, eval_batch_size: pairs per batch, in training and in evaluation.
        data_seed: seed of the training batches.

    Raises:
        OptionError: an option is out of bounds.
    """

    def __init__(
        self, splits: Mapping[str, LabelledPairs], *, batch_size: int, eval_batch_size: int, data_seed: int
    ) -> None:
        super().__init__()
        self.splits = splits
        self.batch_size = check_integer("batch_size", batch_size)
        self.eval_batch_size = check_integer("eval_batch_size", eval_batch_size)
        self.data_seed = check_integer("data_seed", data_seed, minimum=0)

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
    labelled: LabelledPairs, *, train_size: int | None, val_size: int | None, test_size: int | None, seed: int
) -> dict[str, LabelledPairs]:
    """Return three splits of pairs, drawn at random.

    Args:
        labelled: the pairs.
        train_size: pairs of the training split. None: all that the others leave.
        val_size, test_size: pairs of the other splits. None: a tenth of all pairs.
        seed: seed of the draw.

    Raises:
        OptionError: a size is out of bounds, or there are not as many pairs.
    """
    check_integer("data_seed", seed, minimum=0)
    count = len(labelled.pairs)
    given = {"val_size": val_size, "test_size": test_size, "train_size": train_size}
    sizes = {name: None if size is None else check_integer(name, size) for name, size in given.items()}
    held_out = [count // SHARE if sizes[name] is None else sizes[name] for name in ("val_size", "test_size")]
    left = count - sum(held_out)
    if left < (train_size or 1) or 0 in held_out:
        name = next((name for name in ("train_size", "val_size", "test_size") if sizes[name] is not None), "train_size")
        reason = f"there are {count:,} pairs, and validation, test and training need {sum(held_out):,} and more"
        if train_size is not None:
            reason = f"there are {count:,} pairs, and validation and test have {sum(held_out):,}"
        raise OptionError(name, given[name], reason)
    order = np.random.default_rng(mix_seed(seed, "split")).permutation(count)
    parts = np.split(order, np.cumsum([*held_out, train_size or left]))
    rows = zip(("val", "test", "train"), parts, strict=False)
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
        names: names of the concepts.
        splits, batch_size, eval_batch_size, data_seed: see `ConditionalData`.
        **options: see `gyral.tasks.base.Task`: optimizer, scheduler, monitor, mode, overfit, prefetch.
    """

    measures = (
        Measure("kl", "Kullback-Leibler divergence", digits=4, higher_is_better=False),
        Measure("pearson", "Pearson correlation", digits=4),
        Measure("spearman", "Spearman correlation", digits=4),
    )

    def __init__(
        self,
        model: Any,
        names: Sequence[str],
        splits: Mapping[str, LabelledPairs],
        *,
        batch_size: int,
        eval_batch_size: int,
        data_seed: int,
        **options: Any,
    ) -> None:
        super().__init__(
            model,
            ConditionalData(splits, batch_size=batch_size, eval_batch_size=eval_batch_size, data_seed=data_seed),
            sizes={"concepts": len(names)},
            objective=Probability(),
            baseline=mean_probability_loss(splits["train"].targets, splits["test"].targets),
            metrics=ConditionalMetrics(),
            **options,
        )
        self.names = names

    @classmethod
    def figures(cls) -> dict[str, Callable[..., Any]]:
        from gyral.applications.boxes.probability_figures import conditionals

        return {**super().figures(), "conditionals": conditionals}

    def render(self, batch: ConceptBatch, predicted: Tensor, row: int = 0) -> str:
        first, second = self.name_pair(batch, row)
        target, prediction = (f"{100 * values[row].item():.1f}" for values in (batch.targets, predicted))
        return f"input       {first}, given {second}\ntarget      {target}\nprediction  {prediction}"
