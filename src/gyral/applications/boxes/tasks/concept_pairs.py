"""Base class of tasks on pairs of concepts: the model predicts the probability of a concept given another."""

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from gyral.applications.boxes.data.pairs import ConceptBatch
from gyral.applications.boxes.model import ConceptModel
from gyral.core.options import NonNegativeInt, PositiveInt
from gyral.tasks.base import Data
from gyral.tasks.data_module import SplitData
from gyral.tasks.data_task import DataOptionsTask
from gyral.tasks.metrics import Metrics
from gyral.tasks.objective import Objective, zero_without

MARGIN = 1e-4  # predicted probabilities are at most 1 - MARGIN, so that the loss of a false pair is finite


class Probability(Objective):
    """One probability per prediction; the loss is the cross-entropy of the target probability in nats.

    Outputs are the logarithms of probabilities, (B,). Targets are probabilities (B,), NaN where there is no target.
    """

    def __init__(self) -> None:
        super().__init__(1)

    def has_target(self, targets: Tensor) -> Tensor:
        return ~targets.isnan()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        present = self.has_target(targets)
        log_true = outputs[present].clamp(max=0) + math.log1p(-MARGIN)
        log_false = (-log_true.expm1()).log()
        found = targets[present].to(outputs.dtype)
        return zero_without(-(found * log_true + (1 - found) * log_false).mean(), present)

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs.exp()

    def metrics(self, per_step: bool) -> Metrics:
        return ProbabilityMetrics()


class ProbabilityMetrics(Metrics):
    """The loss of probabilities."""

    def update(self, outputs: Tensor, batch: ConceptBatch, loss: Tensor) -> None:
        """Add one batch: its logarithms of probabilities (B,) and its mean loss."""
        self.loss.update(loss, weight=(~batch.targets.isnan()).sum())


class LabelledScores(Metric):
    """Collects the outputs and the targets of all pairs."""

    scores: list[Tensor]
    targets: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("targets", [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add outputs and targets, both (B,)."""
        self.scores.append(scores.double())
        self.targets.append(targets)

    def compute(self) -> tuple[Tensor, Tensor]:
        return dim_zero_cat(self.scores), dim_zero_cat(self.targets)


class ConceptData(SplitData):
    """Pairs of concepts. A subclass makes them in `__post_init__`.

    Args:
        batch_size, eval_batch_size: pairs per batch, in training and in evaluation.
        data_seed: seed of the training batches.

    Attributes:
        names: names of the concepts.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"batch_size": 8, "eval_batch_size": 8}

    batch_size: PositiveInt = 512
    eval_batch_size: PositiveInt = 8192
    data_seed: NonNegativeInt = 0
    names: Sequence[str] = field(init=False)


class ConceptTask(DataOptionsTask[Data]):
    """A task whose examples are pairs of concepts (a, b) with a target for P(a | b)."""

    model_type = ConceptModel
    figures: ClassVar = {
        "boxes": "gyral.applications.boxes.figure.draw_boxes",
        "overlaps": "gyral.applications.boxes.probability_figures.overlaps",
    }

    @property
    def names(self) -> Sequence[str]:
        """The names of the concepts."""
        data: Any = self.data
        found: Sequence[str] = data.names
        return found

    def forward(self, batch: ConceptBatch) -> Tensor:
        """Return log P(a | b) of each pair, (B,)."""
        log_probabilities: Tensor = self.model(batch.inputs)
        return log_probabilities

    def shown_concepts(self, count: int) -> list[int]:
        """Return the numbers of up to `count` concepts for pictures; in this base class, the first ones."""
        return list(range(min(count, len(self.names))))

    def name_pair(self, batch: ConceptBatch, row: int) -> tuple[str, str]:
        """Return the names of a and b."""
        first, second = batch.inputs[row].tolist()
        return self.names[first], self.names[second]


def mean_probability_loss(train: np.ndarray, test: np.ndarray) -> float:
    """Return the cross-entropy, in nats, of a predictor that returns the mean probability of training."""
    mean = float(np.mean(train, dtype=np.float64))
    objective = Probability()
    targets = torch.from_numpy(test.astype(np.float64))
    return objective.loss(torch.full_like(targets, math.log(mean)), targets).item()
