"""Metrics that several tasks share."""

from abc import abstractmethod
from collections.abc import Sequence
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

    def compute_groups(self) -> dict[str, Tensor]:
        """Return the metrics that only a test reports, of groups of rows; in this base class none. Resets nothing."""
        return {}

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


class GroupedMetrics(Metrics):
    """The loss, and shares that a test reports for groups of rows, too (`Batch.groups`).

    Subclasses add attributes that are a `GroupShares` each.

    Args:
        groups: names of the groups after the first one, which is that of the metrics without a suffix.
    """

    def __init__(self, groups: Sequence[str] = ()) -> None:
        super().__init__()
        self.groups = ("", *groups)

    def update_loss(self, loss: Tensor, count: Tensor, groups: Tensor) -> None:
        """Add the mean loss of a batch with its number of targets, if its rows are in the first group.

        Either all rows of a batch are in the first group or none is.
        """
        own = groups[:, 0].any()
        self.loss.update(torch.where(own, loss, 0), weight=count * own)

    def membership(self, batch: Batch) -> Tensor:
        """Return the groups of the rows of a batch, (B, G)."""
        rows = len(batch.inputs)
        return torch.ones(rows, 1, device=batch.inputs.device) if batch.groups is None else batch.groups

    def compute_groups(self) -> dict[str, Tensor]:
        """Return the shares in each group that has rows, such as `fine_2x`."""
        shares = {name: metric for name, metric in self.named_children() if isinstance(metric, GroupShares)}
        return {
            f"{name}_{group}": value
            for name, metric in shares.items()
            for group, value in zip(self.groups[1:], torch.atleast_1d(metric.compute())[1:], strict=True)
            if not value.isnan()
        }

    def compute(self) -> dict[str, Tensor]:
        return {name: value[0] if value.dim() else value for name, value in super().compute().items()}


class AnswerMetrics(GroupedMetrics):
    """Loss, share of right symbols ("fine") and share of answers that are right as a whole ("coarse"; Yang 2016)."""

    names = (*Metrics.names, "fine", "coarse")

    def __init__(self, groups: Sequence[str] = ()) -> None:
        super().__init__(groups)
        self.fine = GroupShares(len(self.groups))
        self.coarse = GroupShares(len(self.groups))

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        """Add one batch: its logits (B, T, classes) and its mean loss."""
        groups, answers = self.membership(batch), answers_of(batch)
        self.update_loss(loss, (batch.targets != IGNORED).sum(), groups)
        correct = logits.argmax(dim=-1) == batch.targets
        self.fine.update((correct & answers).sum(dim=1), answers.sum(dim=1), groups)
        self.coarse.update((correct | ~answers).all(dim=1), torch.ones(len(answers), device=answers.device), groups)


class BitMetrics(GroupedMetrics):
    """Loss per bit, share of wrong bits, and share of sequences in which all bits are right."""

    names = (*Metrics.names, "wrong_bits", "sequence_accuracy")

    def __init__(self, groups: Sequence[str] = ()) -> None:
        super().__init__(groups)
        self.wrong_bits = GroupShares(len(self.groups))
        self.sequence_accuracy = GroupShares(len(self.groups))

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        """Add one batch: its logits (B, T, bits), which are positive for predicted ones, and its mean loss."""
        groups, present = self.membership(batch), ~batch.targets.isnan()
        rows = len(present)
        wrong = ((logits > 0) != (batch.targets > 0)) & present
        self.update_loss(loss, present.sum(), groups)
        self.wrong_bits.update(wrong.flatten(1).sum(dim=1), present.flatten(1).sum(dim=1), groups)
        correct = ~wrong.flatten(1).any(dim=1)
        self.sequence_accuracy.update(correct, torch.ones(rows, device=correct.device), groups)


class GroupShares(Metric):
    """Shares in G groups of rows, such as the share of right answers: (G,), NaN for a group without rows.

    Args:
        groups: G.
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.hits: Tensor
        self.counts: Tensor
        for name in ("hits", "counts"):
            self.add_state(name, torch.zeros(groups, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, hits: Tensor, counts: Tensor, groups: Tensor) -> None:
        """Add rows: their hits (B,), the numbers of which they are a share (B,), and their groups (B, G)."""
        weights = groups.to(self.hits.dtype)
        self.hits += hits.to(weights.dtype) @ weights
        self.counts += counts.to(weights.dtype) @ weights

    def compute(self) -> Tensor:
        return (self.hits / self.counts).float()


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
