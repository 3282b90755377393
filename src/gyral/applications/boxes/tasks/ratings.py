"""Films that users like together: the probability that a user likes a film given that the user likes another film.

An example, in percent:

    input       film 12, given film 7
    target      31.5
    prediction  29.8
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gyral.applications.boxes.data.pairs import ConceptBatch, LabelledPairs, PairBatches
from gyral.applications.boxes.data.ratings import Conditionals, load_conditionals
from gyral.applications.boxes.tasks.concept_pairs import (
    MARGIN,
    ConceptTask,
    LabelledScores,
    Probability,
    ProbabilityMetrics,
    mean_probability_loss,
)
from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.errors import OptionError
from gyral.core.measures import SUBSTITUTE, Measure
from gyral.data.batching import DrawnBatches, RepeatedBatches, mix_seed
from gyral.data.splits import SPLITS
from gyral.tasks.data_module import SplitData

log = logging.getLogger(__name__)


class RatingData(SplitData):
    """Pairs of films with conditional probabilities, split at random.

    Args:
        conditionals: the pairs.
        val_fraction, test_fraction: shares of the pairs.
        batch_size, eval_batch_size: pairs per batch, in training and in evaluation.
        data_seed: seed of the splits and of the training batches.

    Raises:
        OptionError: an option is out of bounds, or a split has no pair.
    """

    def __init__(
        self,
        conditionals: Conditionals,
        *,
        val_fraction: float,
        test_fraction: float,
        batch_size: int,
        eval_batch_size: int,
        data_seed: int,
    ) -> None:
        super().__init__()
        self.batch_size = check_integer("batch_size", batch_size)
        self.eval_batch_size = check_integer("eval_batch_size", eval_batch_size)
        self.data_seed = check_integer("data_seed", data_seed, minimum=0)
        fractions = {"val_fraction": val_fraction, "test_fraction": test_fraction}
        count = len(conditionals.pairs)
        sizes = [int(check_real(name, value, above=0, below=1) * count) for name, value in fractions.items()]
        if 0 in sizes or sum(sizes) >= count:
            raise OptionError("val_fraction", val_fraction, "must leave pairs for all splits")
        order = np.random.default_rng(mix_seed(data_seed, "split")).permutation(count)
        parts = np.split(order, np.cumsum(sizes))
        self.splits = {
            split: LabelledPairs(conditionals.pairs[rows], conditionals.probabilities[rows])
            for split, rows in zip(("val", "test", "train"), parts, strict=True)
        }

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


class RatingMetrics(ProbabilityMetrics):
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


class RatingsTask(ConceptTask[RatingData]):
    """Prediction of the conditional probabilities of films that users like, after Li et al. (ICLR 2019, section 4.4).

    The probability P(a | b) is the share of users who like a among those who like b. The baseline is the loss on the
    test split of the mean of the training split. Without a file, the task generates ratings and logs the metric
    `substitute` = 1.

    Args:
        model: makes the model from the number of films.
        ratings: a file such as ratings.csv of MovieLens. None: generated ratings.
        films, liked: see `gyral.applications.boxes.data.ratings.load_conditionals`.
        val_fraction, test_fraction, batch_size, eval_batch_size, data_seed: see `RatingData`; `data_seed` is also the
            seed of generated ratings.
        **options: see `gyral.tasks.base.Task`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds, or the file cannot be read or is not in the form.
    """

    measures = (
        Measure("kl", "Kullback-Leibler divergence", digits=4, higher_is_better=False),
        Measure("pearson", "Pearson correlation", digits=4),
        Measure("spearman", "Spearman correlation", digits=4),
    )
    remarks = (SUBSTITUTE,)

    def __init__(
        self,
        model: Any,
        *,
        ratings: str | Path | None = None,
        films: int = 286,
        liked: float = 4.0,
        val_fraction: float = 0.1,
        test_fraction: float = 0.1,
        batch_size: int = 512,
        eval_batch_size: int = 8192,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        check_integer("data_seed", data_seed, minimum=0)
        found = load_conditionals(ratings, films=films, liked=liked, seed=data_seed)
        data = RatingData(
            found,
            val_fraction=val_fraction,
            test_fraction=test_fraction,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            data_seed=data_seed,
        )
        if found.generated:
            log.warning("ratings= is not given; using generated ratings, which are not comparable to published results")
        self.generated = found.generated
        train, test = (data.splits[split].targets for split in ("train", "test"))
        super().__init__(
            model,
            data,
            sizes={"concepts": len(found.names)},
            objective=Probability(),
            baseline=mean_probability_loss(train, test),
            metrics=RatingMetrics(),
            **options,
        )
        self.names = found.names

    def data_metrics(self) -> dict[str, float]:
        return {**super().data_metrics(), "substitute": float(self.generated)}

    def render(self, batch: ConceptBatch, predicted: Tensor, row: int = 0) -> str:
        first, second = self.name_pair(batch, row)
        target, prediction = (f"{100 * values[row].item():.1f}" for values in (batch.targets, predicted))
        return f"input       {first}, given {second}\ntarget      {target}\nprediction  {prediction}"
