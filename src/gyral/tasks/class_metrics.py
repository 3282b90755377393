"""Metrics of classes that are not equally frequent, and the weights of their losses."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanMetric, Metric
from torchmetrics.functional.classification import binary_auroc, binary_average_precision
from torchmetrics.utilities.data import dim_zero_cat

from gyral.core.measures import ACCURACY, OF_OBJECTIVES, Measure, percentage
from gyral.data.batching import IGNORED
from gyral.tasks.metrics import AccuracyMetrics, SequenceMetrics
from gyral.tasks.objective import Classification, zero_without

MOST_CLASSES = 100  # of a confusion matrix; more classes are tokens
MOST_SCORES = 50_000_000  # probabilities of a split that are kept for the ranking metrics, 200 MB

BALANCED_ACCURACY = percentage("balanced_accuracy", "balanced accuracy")
MACRO_F1 = percentage("macro_f1", "macro F1")
AUROC = Measure("auroc", "AUROC", digits=3)
AVERAGE_PRECISION = Measure("average_precision", "average precision", digits=3)
MAJORITY = percentage("majority", "most frequent class", at_end=True, floor_of=ACCURACY.name)
OF_CLASSES = (ACCURACY, MAJORITY, BALANCED_ACCURACY, MACRO_F1, AUROC, AVERAGE_PRECISION, *OF_OBJECTIVES[1:])


class ConfusionMatrix(Metric):
    """Counts of pairs of a target and a predicted class, (C, C): a row for each target.

    That of torchmetrics refuses a batch without a target, which the rows of a process may be.

    Args:
        classes: C.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.counts: Tensor
        self.add_state("counts", torch.zeros(classes, classes, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, targets: Tensor) -> None:
        """Add predicted classes and targets, both (n,)."""
        pairs = torch.bincount(targets * self.classes + predicted, minlength=self.classes**2)
        self.counts += pairs.view(self.classes, self.classes)

    def compute(self) -> Tensor:
        return self.counts


class BalancedAccuracy(ConfusionMatrix):
    """Mean recall of the classes that occur among the targets."""

    def compute(self) -> Tensor:
        support = self.counts.sum(dim=1)
        return (self.counts.diag() / support)[support > 0].mean()


class MacroF1(ConfusionMatrix):
    """Mean F1 of the classes that occur among the targets or the predictions."""

    def compute(self) -> Tensor:
        sizes = self.counts.sum(dim=0) + self.counts.sum(dim=1)
        return (2 * self.counts.diag() / sizes)[sizes > 0].mean()


class Ranking(Metric):
    """A metric of the probabilities of a class against the others: the mean over classes, or that of one class.

    A class that all targets have, or none, does not count; without another one, the metric is NaN.

    Args:
        function: the metric of probabilities (n,) and targets (n,) of 0 and 1.
        chosen: the class that counts. None: all of them.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], chosen: int | None) -> None:
        super().__init__()
        self.function = function
        self.chosen = chosen
        self.probabilities: list[Tensor]
        self.targets: list[Tensor]
        for name in ("probabilities", "targets"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, probabilities: Tensor, targets: Tensor) -> None:
        """Add probabilities (n, C) and targets (n,)."""
        chosen = slice(None) if self.chosen is None else slice(self.chosen, self.chosen + 1)
        self.probabilities.append(probabilities[:, chosen])
        self.targets.append(targets)

    def compute(self) -> Tensor:
        if len(self.targets) == 0:
            return torch.tensor(torch.nan)
        probabilities, targets = dim_zero_cat(self.probabilities), dim_zero_cat(self.targets)
        classes = range(probabilities.shape[1]) if self.chosen is None else [self.chosen]
        values = []
        for column, number in enumerate(classes):
            own = targets == number
            if own.any() and not own.all():
                values.append(self.function(probabilities[:, column], own.long()))
        return torch.stack(values).mean() if values else torch.tensor(torch.nan)


class ClassMetrics(AccuracyMetrics):
    """Loss, accuracy, balanced accuracy, macro F1, AUROC and average precision.

    AUROC and average precision of two classes are those of the rarer one; of more, the mean of each class against the
    others.

    Args:
        objective: the objective of the task.
        per_step: whether each step has a prediction: the metrics also have the share of sequences all of whose
            predictions are correct.
        positive: the rarer of two classes; None if there are more.
        ranked: whether AUROC and average precision are among the metrics. They keep all probabilities in memory.
    """

    def __init__(self, objective: Classification, *, per_step: bool, positive: int | None, ranked: bool) -> None:
        super().__init__(objective.output_size, objective.count)
        self.names = SequenceMetrics.names if per_step else AccuracyMetrics.names
        self.sequence_accuracy = MeanMetric() if per_step else None
        self.balanced_accuracy = BalancedAccuracy(objective.output_size)
        self.macro_f1 = MacroF1(objective.output_size)
        self.names = (*self.names, BALANCED_ACCURACY.name, MACRO_F1.name)
        self.auroc = Ranking(binary_auroc, positive) if ranked else None
        self.average_precision = Ranking(binary_average_precision, positive) if ranked else None
        if ranked:
            self.names = (*self.names, AUROC.name, AVERAGE_PRECISION.name)

    def leave_out_ranking(self) -> None:
        """Leave out AUROC and average precision, and free the probabilities that they keep."""
        self.auroc = self.average_precision = None

    def update(self, logits: Tensor, batch: Any, loss: Tensor) -> None:
        """Add one batch: its logits (B, …, classes) and its mean loss."""
        self.loss.update(loss, weight=self.count(batch.targets))
        present = batch.targets != IGNORED
        predicted, targets = logits.argmax(dim=-1), batch.targets[present]
        for metric in (self.accuracy, self.balanced_accuracy, self.macro_f1):
            metric.update(predicted[present], targets)
        if self.sequence_accuracy is not None:
            correct = (predicted == batch.targets) | ~present
            self.sequence_accuracy.update(correct.all(dim=1).float(), weight=present.any(dim=1))
        for ranking in (self.auroc, self.average_precision):
            if ranking is not None:
                ranking.update(logits[present].float().softmax(dim=-1), targets)


class WeightedClassification(Classification):
    """`Classification` whose loss is a weighted mean, as that of `torch.nn.CrossEntropyLoss(weight=…)`.

    Args:
        weights: the weight of each class, (C,).
    """

    def __init__(self, weights: np.ndarray) -> None:
        super().__init__(len(weights))
        self.weights = torch.from_numpy(weights).float()

    def count(self, targets: Tensor) -> Tensor:
        return self.weights.to(targets.device)[targets[self.has_target(targets)]].sum()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        weights = self.weights.to(outputs.device, outputs.dtype)
        loss = F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), weights, ignore_index=IGNORED)
        return zero_without(loss, self.has_target(targets))


def balanced_weights(counts: Sequence[int]) -> np.ndarray:
    """Return the weight n / (C · n_c) of each class, (C,), which makes the classes count equally, as in scikit-learn.

    Args:
        counts: (C,) numbers n_c of targets of each class, of which there are n.
    """
    return sum(counts) / (len(counts) * np.maximum(counts, 1))
