"""Metrics that several tasks share."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torchmetrics import MeanAbsoluteError, MeanMetric, MeanSquaredError, Metric

from gyral.data.batching import IGNORED, Batch


class Metrics(nn.Module):
    """The metrics of a task; in this base class, the loss.

    Subclasses add attributes of type `torchmetrics.Metric`.

    Attributes:
        names: names of the metrics that `compute` returns.
    """

    names: tuple[str, ...] = ("loss",)

    def __init__(self) -> None:
        super().__init__()
        self.loss = MeanMetric()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the metrics, but keep their dtypes: sums in half precision (trainer.precision=bf16-true) are wrong."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, recurse)

    @abstractmethod
    def update(self, outputs: Any, batch: Any, loss: Tensor) -> None:
        """Add one batch: the outputs of the model and the mean loss."""

    def compute_categories(self) -> dict[str, Tensor]:
        """Return the metrics of each category of rows, which only a test reports. This does not reset the metrics."""
        return {}

    def reset(self) -> None:
        """Forget all batches, as of an evaluation that an error has ended."""
        with torch.inference_mode(False):  # a later fit could not update tensors of inference mode
            for module in self.modules():
                if isinstance(module, Metric):
                    module.reset()

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics of all batches since the last call, and reset them."""
        metrics = {name: metric for name, metric in self.named_children() if isinstance(metric, Metric)}
        values = {name: metric.compute() for name, metric in metrics.items()}
        with torch.inference_mode(False):  # a later fit could not update tensors of inference mode
            for metric in metrics.values():
                metric.reset()
        return values


class Accuracy(Metric):
    """Share of correct classes, NaN without any. That of torchmetrics is 0 then, and it refuses a batch without any."""

    def __init__(self) -> None:
        super().__init__()
        self.hits: Tensor
        self.count: Tensor
        for name in ("hits", "count"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, targets: Tensor) -> None:
        """Add predicted classes and targets, both (n,)."""
        self.hits += (predicted == targets).sum()
        self.count += targets.numel()

    def compute(self) -> Tensor:
        return self.hits / self.count


def count_targets(targets: Tensor) -> Tensor:
    """Return the number of targets that are classes."""
    return (targets != IGNORED).sum()


class AccuracyMetrics(Metrics):
    """Loss over all targets, and accuracy over the answers.

    Args:
        classes: number of classes, for subclasses.
        count: returns the sum of the weights with which targets count in the mean loss, see `Objective.count`.
    """

    names: tuple[str, ...] = (*Metrics.names, "accuracy")

    def __init__(self, classes: int, count: Callable[[Tensor], Tensor] = count_targets) -> None:
        super().__init__()
        self.count = count
        self.accuracy: Metric = Accuracy()

    def update(self, logits: Tensor, batch: Any, loss: Tensor) -> None:
        """Add one batch: its logits (B, …, classes) and its mean loss."""
        self.loss.update(loss, weight=self.count(batch.targets))
        answers = answers_of(batch)
        self.accuracy.update(logits.argmax(dim=-1)[answers], batch.targets[answers])


class SequenceMetrics(AccuracyMetrics):
    """`AccuracyMetrics`, and the fraction of sequences whose answers are all correct, of those that have answers."""

    names = (*AccuracyMetrics.names, "sequence_accuracy")

    def __init__(self, classes: int, count: Callable[[Tensor], Tensor] = count_targets) -> None:
        super().__init__(classes, count)
        self.sequence_accuracy = MeanMetric()

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        super().update(logits, batch, loss)
        correct, answers = logits.argmax(dim=-1) == batch.targets, answers_of(batch)
        self.sequence_accuracy.update((correct | ~answers).all(dim=1).float(), weight=answers.any(dim=1))


class CategoryMetrics(Metrics):
    """The loss, and shares that a test also reports for each category of rows (`Batch.categories`).

    Subclasses add attributes of type `CategoryShares`.

    Args:
        categories: names of the categories after the first one; the metrics of the first one have no suffix.
    """

    def __init__(self, categories: Sequence[str] = ()) -> None:
        super().__init__()
        self.categories = ("", *categories)

    def update_loss(self, loss: Tensor, count: Tensor, categories: Tensor) -> None:
        """Add the mean loss of a batch with its number of targets, if its rows are in the first category.

        All rows of a batch must be in the first category, or none.
        """
        own = categories[:, 0].any()
        self.loss.update(torch.where(own, loss, 0), weight=count * own)

    def membership(self, batch: Batch) -> Tensor:
        """Return the categories of the rows of a batch, (B, C)."""
        rows = len(batch.inputs)
        return torch.ones(rows, 1, device=batch.inputs.device) if batch.categories is None else batch.categories

    def compute_categories(self) -> dict[str, Tensor]:
        """Return the shares in each category that has rows, such as `fine_2x`."""
        shares = {name: metric for name, metric in self.named_children() if isinstance(metric, CategoryShares)}
        return {
            f"{name}_{category}": value
            for name, metric in shares.items()
            for category, value in zip(self.categories[1:], torch.atleast_1d(metric.compute())[1:], strict=True)
            if not value.isnan()
        }

    def compute(self) -> dict[str, Tensor]:
        return {name: value[0] if value.dim() else value for name, value in super().compute().items()}


class AnswerMetrics(CategoryMetrics):
    """Loss, share of correct symbols of the answers, and share of answers without an error.

    Args:
        categories: see `CategoryMetrics`.
        shares: names of the two shares, "fine" and "coarse" in Yang (2016).
    """

    names = (*Metrics.names, "fine", "coarse")

    def __init__(self, categories: Sequence[str] = (), shares: tuple[str, str] = ("fine", "coarse")) -> None:
        super().__init__(categories)
        self.names = (*Metrics.names, *shares)
        for name in shares:
            self.add_module(name, CategoryShares(len(self.categories)))

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        """Add one batch: its logits (B, T, classes) and its mean loss."""
        categories, answers = self.membership(batch), answers_of(batch)
        self.update_loss(loss, (batch.targets != IGNORED).sum(), categories)
        correct = logits.argmax(dim=-1) == batch.targets
        symbols, sequences = (getattr(self, name) for name in self.names[1:])
        symbols.update((correct & answers).sum(dim=1), answers.sum(dim=1), categories)
        answered = answers.any(dim=1)
        sequences.update((correct | ~answers).all(dim=1) & answered, answered, categories)


class BitMetrics(CategoryMetrics):
    """Loss per bit, share of wrong bits, and share of sequences without a wrong bit."""

    names = (*Metrics.names, "wrong_bits", "sequence_accuracy")

    def __init__(self, categories: Sequence[str] = ()) -> None:
        super().__init__(categories)
        self.wrong_bits = CategoryShares(len(self.categories))
        self.sequence_accuracy = CategoryShares(len(self.categories))

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        """Add one batch: its logits (B, T, bits), positive for a predicted 1, and its mean loss."""
        categories, present = self.membership(batch), ~batch.targets.isnan()
        answered = present.flatten(1).any(dim=1)
        wrong = ((logits > 0) != (batch.targets > 0)) & present
        self.update_loss(loss, present.sum(), categories)
        self.wrong_bits.update(wrong.flatten(1).sum(dim=1), present.flatten(1).sum(dim=1), categories)
        self.sequence_accuracy.update(answered & ~wrong.flatten(1).any(dim=1), answered, categories)


class CategoryShares(Metric):
    """Shares in C categories of rows, such as the share of correct answers: (C,), NaN for a category without rows.

    Args:
        categories: C.
    """

    def __init__(self, categories: int) -> None:
        super().__init__()
        self.hits: Tensor
        self.counts: Tensor
        for name in ("hits", "counts"):
            self.add_state(name, torch.zeros(categories, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, hits: Tensor, counts: Tensor, categories: Tensor) -> None:
        """Add rows: numerators (B,) and denominators (B,) of the shares, and categories (B, C)."""
        weights = categories.to(self.hits.dtype)
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
        dtype = torch.promote_types(outputs.dtype, batch.targets.dtype)  # one of them may have half precision
        predicted, targets = outputs[present].to(dtype), batch.targets[present].to(dtype)
        self.mse.update(predicted, targets)
        self.mae.update(predicted, targets)
        self.r2.update(predicted, targets)


class CategoryRegressionMetrics(CategoryMetrics):
    """The metrics of `RegressionMetrics` for one prediction per sequence; a test reports the errors of each category.

    Args:
        size: Y, number of real values per prediction.
        categories: see `CategoryMetrics`.
    """

    names = RegressionMetrics.names

    def __init__(self, size: int, categories: Sequence[str] = ()) -> None:
        super().__init__(categories)
        self.mse = CategoryShares(len(self.categories))
        self.mae = CategoryShares(len(self.categories))
        self.r2 = Determination(size)

    def update(self, outputs: Tensor, batch: Batch, loss: Tensor) -> None:
        """Add one batch: its outputs (B, Y) and its mean loss."""
        categories, present = self.membership(batch), ~batch.targets.isnan().any(dim=-1)
        errors = torch.where(present.unsqueeze(-1), outputs - batch.targets, 0)
        counts = present * batch.targets.shape[-1]
        self.update_loss(loss, present.sum(), categories)
        self.mse.update(errors.square().sum(dim=-1), counts, categories)
        self.mae.update(errors.abs().sum(dim=-1), counts, categories)
        own = present & categories[:, 0].bool()
        self.r2.update(outputs[own], batch.targets[own])


class Determination(Metric):
    """The coefficient of determination R², averaged over the Y dimensions of a target.

        R² = 1 − Σ (y − ŷ)² / Σ (y − ȳ)²

    It is 0 for a predictor that returns the mean of the targets. For constant targets it is 1 if all predictions are
    correct, else 0, as in scikit-learn. `torchmetrics.R2Score` treats sums of squares below 1e-4 as zero, which makes
    any predictor of small targets perfect; this class does not. Of fewer than two targets, it is NaN: one target has no
    deviation from its mean.

    Sums are those of differences from the first target, because squares of targets that are large compared with their
    deviations have no digits left for these. Each process has its own first target.

    Args:
        size: Y.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.count: Tensor
        self.first: Tensor
        self.total: Tensor
        self.squares: Tensor
        self.residuals: Tensor
        self.add_state("count", torch.zeros(1, dtype=torch.float64))
        for name in ("first", "total", "squares"):
            self.add_state(name, torch.zeros(size, dtype=torch.float64))
        self.add_state("residuals", torch.zeros(size, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, targets: Tensor) -> None:
        """Add predictions and targets, both (n, Y)."""
        if not len(targets):
            return
        predicted, targets = predicted.double(), targets.double()
        self.first = torch.where(self.count == 0, targets[0], self.first)
        self.count += len(targets)
        differences = targets - self.first
        self.total += differences.sum(dim=0)
        self.squares += differences.square().sum(dim=0)
        self.residuals += (targets - predicted).square().sum(dim=0)

    def compute(self) -> Tensor:
        """Return R², NaN without two targets."""
        # a row for each process; their sums become those of differences from the same target
        counts, first, totals, squares = map(torch.atleast_2d, (self.count, self.first, self.total, self.squares))
        shifts = first - first[counts.argmax()]
        squares = squares + 2 * shifts * totals + counts * shifts.square()
        totals, count = (totals + counts * shifts).sum(dim=0), counts.sum()
        deviations = squares.sum(dim=0) - totals.square() / count
        ratios = torch.where(self.residuals == 0, 0, torch.where(deviations == 0, 1, self.residuals / deviations))
        return torch.where(count > 1, 1 - ratios.mean(), torch.nan).float()


def answers_of(batch: Any) -> Tensor:
    """Return a mask of the predictions that count in the accuracy: the answers, or all with a target."""
    return batch.targets != IGNORED if batch.answers is None else batch.answers
