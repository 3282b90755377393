"""Hypernyms: is every gazelle an even-toed ungulate? Trained on direct hypernyms, tested on implied hypernyms.

An example:

    input       gazelle.n.01 is a kind of even-toed_ungulate.n.01
    target      yes
    prediction  yes
"""

import logging
import math
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_average_precision

from gyral.applications.boxes.data.hierarchy import load_hierarchy
from gyral.applications.boxes.data.pairs import ConceptBatch, PairBatches, published_mammals
from gyral.applications.boxes.data.splits import HypernymSplits, held_out_splits, published_wordnet
from gyral.applications.boxes.tasks.concept_pairs import (
    ConceptData,
    ConceptTask,
    LabelledScores,
    Probability,
    ProbabilityMetrics,
)
from gyral.core.checks import check_choice
from gyral.core.measures import ACCURACY, SPLITS, Measure
from gyral.core.options import OneOf, PositiveInt
from gyral.data.batching import DrawnBatches, RepeatedBatches, mix_seed

log = logging.getLogger(__name__)
TESTS = ("drawn", "published")


class HypernymData(ConceptData):
    """True pairs of concepts with random false pairs; each training batch draws new false pairs.

    A subclass makes the pairs in `__post_init__`.

    Args:
        negatives: false pairs for each true one in training.
        batch_size: true pairs per training batch.
        eval_batch_size: pairs per batch in evaluation.
        data_seed: seed of the training batches.

    Attributes:
        splits: the pairs.
    """

    negatives: PositiveInt = 10
    splits: HypernymSplits = field(init=False)

    def loader(self, split: str) -> PairBatches:
        """Return the pairs of a split; true pairs come first. Training has one draw of false pairs."""
        if check_choice("split", split, SPLITS) == "train":
            generator = np.random.default_rng(mix_seed(self.data_seed, "evaluated"))
            return self.splits.false.label(self.splits.train, self.negatives, generator).batches(self.eval_batch_size)
        return (self.splits.val if split == "val" else self.splits.test).batches(self.eval_batch_size)

    def stream(self) -> RepeatedBatches[ConceptBatch]:
        """Return the training stream: random true pairs with new false pairs."""

        def draw(generator: np.random.Generator, index: int) -> ConceptBatch:
            rows = generator.integers(len(self.splits.train), size=self.batch_size)
            drawn = self.splits.false.label(self.splits.train[rows], self.negatives, generator)
            return drawn.batch(slice(None))

        batches = DrawnBatches(draw, seed=self.data_seed, name="train", length=self.steps())
        return RepeatedBatches(batches, self.steps())


class HypernymMetrics(ProbabilityMetrics):
    """Loss, F1 and accuracy at a threshold, and the average precision, which has no threshold.

    Args:
        criterion: "f1" or "accuracy", which `choose_threshold` maximizes.

    Attributes:
        threshold: pairs whose log P is at least this are predicted to be true. Checkpoints contain it.
    """

    names = (*ProbabilityMetrics.names, "f1", "accuracy", "average_precision")
    threshold: Tensor

    def __init__(self, criterion: str = "f1") -> None:
        super().__init__()
        self.criterion = criterion
        self.pairs = LabelledScores()
        self.register_buffer("threshold", torch.tensor(math.log(0.5), dtype=torch.float64))

    def update(self, outputs: Tensor, batch: ConceptBatch, loss: Tensor) -> None:
        super().update(outputs, batch, loss)
        self.pairs.update(outputs, batch.targets)

    def choose_threshold(self) -> None:
        """Set the threshold to the best value for the pairs since the last `compute`."""
        scores, targets = self.pairs.compute()
        self.threshold.copy_(best_threshold(scores, targets > 0, self.criterion))

    def compute(self) -> dict[str, Tensor]:
        values: dict[str, Any] = super().compute()
        scores, targets = values.pop("pairs")
        labels = targets > 0
        predicted = scores >= self.threshold
        hits = (predicted & labels).sum()
        values["f1"] = 2 * hits / (predicted.sum() + labels.sum())
        values["accuracy"] = (predicted == labels).float().mean()
        ranks = scores.unique(return_inverse=True)[1] / len(scores)  # the same order, in [0, 1) as torchmetrics expects
        values["average_precision"] = binary_average_precision(ranks, labels.long())
        return {name: values[name] for name in self.names}


def best_threshold(scores: Tensor, labels: Tensor, criterion: str) -> Tensor:
    """Return the threshold with the highest F1 or accuracy: the middle between two scores, or one beyond all of them.

    Args:
        scores: (n,).
        labels: (n,) bool.
        criterion: "f1" or "accuracy".
    """
    ordered, order = scores.sort(descending=True)
    hits, count = labels[order].cumsum(0), torch.arange(1, len(scores) + 1, device=scores.device)
    if criterion == "f1":
        values, of_none = 2 * hits / (count + labels.sum()), 0.0
    else:
        negatives = int((~labels).sum())
        values, of_none = (hits + negatives - (count - hits)) / len(scores), negatives / len(scores)
    lower = torch.cat((ordered[1:], ordered[-1:] - 1))
    values = values.masked_fill(ordered == lower, -1)  # equal scores are on the same side
    best = values.argmax()
    return (ordered[best] + lower[best]) / 2 if values[best] >= of_none else ordered[0] + 1


class HypernymTask(ConceptTask[HypernymData]):
    """Prediction of whether a concept is a kind of another one; base class.

    The model predicts P(general | specific), which is 1 for a true and 0 for a false pair. The prediction is true if
    the probability is above a threshold. Each validation chooses the threshold that maximizes the accuracy, if it is
    monitored, or else F1. A test uses the threshold of the checkpoint. The baseline is the loss of the frequency of
    true pairs in training.

    Args:
        model: makes the model from the number of concepts.
        **options: those of `data_class`, a subclass of `HypernymData`, and see `gyral.tasks.base.Task`: optimizer,
            scheduler, mode, overfit, prefetch.
    """

    measures = (
        Measure("f1", "F1", digits=4),
        ACCURACY,
        Measure("average_precision", "average precision", digits=4, at_end=True),
    )
    metrics: HypernymMetrics

    def __init__(self, model: Any, **options: Any) -> None:
        monitor = options.setdefault("monitor", "val/f1")
        super().__init__(model, metrics=HypernymMetrics("accuracy" if monitor == "val/accuracy" else "f1"), **options)

    @classmethod
    def arguments(cls, data: HypernymData) -> dict[str, Any]:
        share = 1 / (1 + data.negatives)
        return {
            "sizes": {"concepts": len(data.names)},
            "objective": Probability(),
            "baseline": -share * math.log(share) - (1 - share) * math.log1p(-share),
        }

    def on_validation_epoch_end(self) -> None:
        self.metrics.choose_threshold()
        super().on_validation_epoch_end()

    def predict(self, batch: ConceptBatch) -> Tensor:
        """Return 1 for pairs with a true prediction and 0 for other pairs, (B,)."""
        return (self(batch).double() >= self.metrics.threshold).float()

    def shown_concepts(self, count: int) -> list[int]:
        """Return the numbers of up to `count` concepts; those with the most direct hyponyms come first."""
        hyponyms = np.bincount(self.data.splits.train[:, 0], minlength=len(self.names))
        return np.argsort(-hyponyms, kind="stable")[:count].tolist()

    def render(self, batch: ConceptBatch, predicted: Tensor, row: int = 0) -> str:
        general, specific = self.name_pair(batch, row)
        target, prediction = ("yes" if values[row] else "no" for values in (batch.targets, predicted))
        return f"input       {specific} is a kind of {general}\ntarget      {target}\nprediction  {prediction}"


class HypernymsData(HypernymData):
    """Pairs of a hierarchy.

    Args:
        hierarchy: a file of general and specific concepts, or WordNet's own folder. None: the mammals of WordNet 3.0.
        root: see `gyral.applications.boxes.data.hierarchy.load_hierarchy`.
        negatives: false pairs for each true one, in all splits.
        val_size, test_size: true pairs of validation and test.
        test: "drawn" or "published": the 209 pairs of the paper, which does not say whether they are also its
            validation split. Here the validation split has other pairs.
        data_dir: folder of the corpora, for published pairs.
        batch_size, eval_batch_size, data_seed: see `HypernymData`; `data_seed` is also the seed of the splits.

    Raises:
        UserError: an option is out of bounds, or a file is missing or not in the format.
    """

    small: ClassVar = {"val_size": 20, "test_size": 12}

    data_dir: str | Path = field()
    hierarchy: str | Path | None = None
    root: str | None = None
    val_size: PositiveInt = 209
    test_size: PositiveInt = 209
    test: Annotated[str, OneOf(TESTS)] = "drawn"
    batch_size = 128
    eval_batch_size = 1024

    def __post_init__(self) -> None:
        concepts = load_hierarchy(self.hierarchy, self.root)
        is_published = self.test == "published"
        self.splits = held_out_splits(
            concepts,
            negatives=self.negatives,
            val_size=self.val_size,
            test_size=self.test_size,
            seed=self.data_seed,
            published=published_mammals(self.data_dir, concepts, self.negatives) if is_published else None,
        )
        self.names = self.splits.names
        log.info("hypernyms: %d concepts, %d pairs for training", len(concepts), len(self.splits.train))


class HypernymsTask(HypernymTask):
    """Hypernyms of a hierarchy, by default the mammals of WordNet 3.0, after Li et al. (ICLR 2019, section 4.2).

    The training split is the transitive reduction, 1,176 pairs of mammals. Validation and test have other pairs of the
    transitive closure, 209 each, and false pairs in the same ratio.

    Args:
        model: makes the model from the number of concepts.
        **options: see `HypernymsData`, and `gyral.tasks.base.Task` for optimizer, scheduler, monitor, mode, overfit,
            prefetch.

    Raises:
        UserError: an option is out of bounds, or a file is missing or not in the format.
    """

    data_class = HypernymsData


class WordnetData(HypernymData):
    """The published pairs of WordNet.

    Args:
        data_dir: folder of the corpora, with the published files in wordnet/.
        negatives: false pairs for each true one in training. Validation and test have published false pairs, one for
            each.
        batch_size, eval_batch_size, data_seed: see `HypernymData`.

    Raises:
        UserError: an option is out of bounds, or a file is missing or not in the format.
    """

    data_dir: str | Path = field()
    negatives = 1
    batch_size = 1024

    def __post_init__(self) -> None:
        self.splits = published_wordnet(self.data_dir)
        self.names = self.splits.names


class WordnetTask(HypernymTask):
    """Hypernyms of all nouns of WordNet 3.0, with the published splits of the closure (Li et al., ICLR 2019).

    Args:
        model: makes the model from the number of concepts.
        **options: see `WordnetData`, and `gyral.tasks.base.Task` for optimizer, scheduler, monitor, mode, overfit,
            prefetch.

    Raises:
        UserError: an option is out of bounds, or a file is missing or not in the format.
    """

    data_class = WordnetData
