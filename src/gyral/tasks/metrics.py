"""Metrics that several tasks share."""

from typing import Any

from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric
from torchmetrics.classification import MulticlassAccuracy

from gyral.data.batching import IGNORED, Batch


class Metrics(nn.Module):
    """Loss over all targets, and accuracy over the answers.

    Attributes:
        names: names of the metrics that `compute` returns.
    """

    names: tuple[str, ...] = ("loss", "accuracy")

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.loss = MeanMetric()
        self.accuracy: Metric = MulticlassAccuracy(classes, average="micro", validate_args=False)

    def update(self, logits: Tensor, batch: Any, loss: Tensor) -> None:
        """Add one batch: its logits (B, T, classes) and its mean loss."""
        self.loss.update(loss, weight=(batch.targets != IGNORED).sum())
        self.accuracy.update(logits.argmax(dim=-1)[batch.answers], batch.targets[batch.answers])

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics of all batches since the last call, and reset them."""
        metrics = {name: metric for name, metric in self.named_children() if isinstance(metric, Metric)}
        values = {name: metric.compute() for name, metric in metrics.items()}
        for metric in metrics.values():
            metric.reset()
        return values


class SequenceMetrics(Metrics):
    """`Metrics`, and the fraction of sequences whose answers are all correct."""

    names = (*Metrics.names, "sequence_accuracy")

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.sequence_accuracy = MeanMetric()

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        super().update(logits, batch, loss)
        correct = logits.argmax(dim=-1) == batch.targets
        self.sequence_accuracy.update((correct | ~batch.answers).all(dim=1).float())
