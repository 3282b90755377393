"""Metrics that several tasks share."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MeanAbsoluteError, MeanMetric, MeanSquaredError, Metric
from torchmetrics.classification import MulticlassAccuracy

from gyral.data.batching import IGNORED, Batch


class Metrics(nn.Module):
    """The metrics of a task; in this base class, the loss.

    Subclasses add attributes that are a `torchmetrics.Metric` each.

    Attributes:
        names: names of the metrics that `compute` returns.
    """

    names: tuple[str, ...] = ("loss",)

    def __init__(self) -> None:
        super().__init__()
        self.loss = MeanMetric()

    @abstractmethod
    def update(self, outputs: Any, batch: Any, loss: Tensor) -> None:
        """Add one batch: the outputs of the model and the mean loss."""

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics of all batches since the last call, and reset them."""
        metrics = {name: metric for name, metric in self.named_children() if isinstance(metric, Metric)}
        values = {name: metric.compute() for name, metric in metrics.items()}
        with torch.inference_mode(False):  # a later fit could not update tensors of inference mode
            for metric in metrics.values():
                metric.reset()
        return values


class AccuracyMetrics(Metrics):
    """Loss over all targets, and accuracy over the answers."""

    names: tuple[str, ...] = (*Metrics.names, "accuracy")

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.accuracy: Metric = MulticlassAccuracy(classes, average="micro", validate_args=False)

    def update(self, logits: Tensor, batch: Any, loss: Tensor) -> None:
        """Add one batch: its logits (B, …, classes) and its mean loss."""
        self.loss.update(loss, weight=(batch.targets != IGNORED).sum())
        answers = answers_of(batch)
        self.accuracy.update(logits.argmax(dim=-1)[answers], batch.targets[answers])


class SequenceMetrics(AccuracyMetrics):
    """`AccuracyMetrics`, and the fraction of sequences whose answers are all correct."""

    names = (*AccuracyMetrics.names, "sequence_accuracy")

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.sequence_accuracy = MeanMetric()

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        super().update(logits, batch, loss)
        correct = logits.argmax(dim=-1) == batch.targets
        self.sequence_accuracy.update((correct | ~answers_of(batch)).all(dim=1).float())


class RegressionMetrics(Metrics):
    """Loss, mean squared error, mean absolute error and R² over all targets.

    Args:
        size: Y, number of real values per prediction.
    """

    names = (*Metrics.names, "mse", "mae", "r2")

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mse = MeanSquaredError()
        self.mae = MeanAbsoluteError()
        self.r2 = Determination(size)

    def update(self, outputs: Tensor, batch: Batch, loss: Tensor) -> None:
        """Add one batch: its outputs (B, …, Y) and its mean loss."""
        present = ~batch.targets.isnan().any(dim=-1)
        self.loss.update(loss, weight=present.sum())
        predicted, targets = outputs[present].to(batch.targets.dtype), batch.targets[present]
        self.mse.update(predicted, targets)
        self.mae.update(predicted, targets)
        self.r2.update(predicted, targets)


class Determination(Metric):
    """The coefficient of determination R², averaged over the Y dimensions of a target.

        R² = 1 − Σ (y − ŷ)² / Σ (y − ȳ)²

    It is 0 for a predictor that returns the mean of the targets. For constant targets it is 1 if all predictions are
    correct, else 0, as in scikit-learn. `torchmetrics.R2Score` treats sums of squares below 1e-4 as zero, which makes
    any predictor of small targets perfect; this class does not.

    Args:
        size: Y.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.count: Tensor
        self.total: Tensor
        self.squares: Tensor
        self.residuals: Tensor
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("total", "squares", "residuals"):
            self.add_state(name, torch.zeros(size, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, targets: Tensor) -> None:
        """Add predictions and targets, both (n, Y)."""
        predicted, targets = predicted.double(), targets.double()
        self.count += len(targets)
        self.total += targets.sum(dim=0)
        self.squares += targets.square().sum(dim=0)
        self.residuals += (targets - predicted).square().sum(dim=0)

    def compute(self) -> Tensor:
        """Return R², NaN without targets."""
        deviations = self.squares - self.total.square() / self.count
        # the rounding errors of constant targets, in double precision, are not a deviation
        deviations = torch.where(deviations <= 1e-12 * self.squares, 0, deviations)
        ratios = torch.where(self.residuals == 0, 0, torch.where(deviations == 0, 1, self.residuals / deviations))
        return torch.where(self.count > 0, 1 - ratios.mean(), torch.nan).float()


def answers_of(batch: Any) -> Tensor:
    """Return the positions of a batch that count in the accuracy: its answers, or all that have a target."""
    return batch.targets != IGNORED if batch.answers is None else batch.answers
