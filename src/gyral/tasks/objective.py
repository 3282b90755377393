"""Objectives: the loss, predictions and metrics of outputs that are classes, bits or real values."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.core.checks import check_integer
from gyral.data.batching import IGNORED
from gyral.tasks.metrics import AccuracyMetrics, BitMetrics, Metrics, RegressionMetrics, SequenceMetrics


class Objective(ABC):
    """The loss, the predictions and the metrics of outputs.

    Args:
        output_size: size of the last dimension of the outputs.

    Raises:
        OptionError: `output_size` is below 1.
    """

    def __init__(self, output_size: int) -> None:
        self.output_size = check_integer("output_size", output_size)

    @abstractmethod
    def has_target(self, targets: Tensor) -> Tensor:
        """Return which predictions have a target, (B, …) bool."""

    def count(self, targets: Tensor) -> Tensor:
        """Return the sum of the weights with which targets count in the mean loss: their number, if all are equal."""
        return self.has_target(targets).sum()

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over all predictions that have a target; 0, with gradients of 0, without targets."""

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """Return the predictions, in the form of the targets."""

    @abstractmethod
    def metrics(self, per_step: bool) -> Metrics:
        """Return the metrics of a task with one prediction per step or per sequence."""


class Classification(Objective):
    """One class per prediction; the loss is the cross-entropy in nats.

    Outputs are logits (B, …, classes). Targets are integers (B, …), `IGNORED` where there is no target.
    """

    def has_target(self, targets: Tensor) -> Tensor:
        return targets != IGNORED

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)
        return zero_without(loss, self.has_target(targets))

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(dim=-1)

    def metrics(self, per_step: bool) -> Metrics:
        kind = SequenceMetrics if per_step else AccuracyMetrics
        return kind(self.output_size, self.count)


class Bits(Objective):
    """Y independent bits per prediction; the loss is the cross-entropy per bit in nats.

    Outputs are logits (B, …, Y). Targets are 0 or 1 in the same shape, NaN where there is no target.
    """

    def has_target(self, targets: Tensor) -> Tensor:
        return ~targets.isnan().any(dim=-1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        present = self.has_target(targets)
        loss = F.binary_cross_entropy_with_logits(outputs[present], targets[present].to(outputs.dtype))
        return zero_without(loss, present)

    def predict(self, outputs: Tensor) -> Tensor:
        return (outputs > 0).float()

    def metrics(self, per_step: bool) -> Metrics:
        return BitMetrics()


class Regression(Objective):
    """Y real values per prediction; the loss is the mean squared error.

    Outputs are (B, …, Y). Targets have the same shape, with NaN where there is no target.
    """

    def has_target(self, targets: Tensor) -> Tensor:
        return ~targets.isnan().any(dim=-1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.shape != targets.shape:  # PyTorch would broadcast them
            shapes = f"{tuple(outputs.shape)} and {tuple(targets.shape)}"
            raise ValueError(f"outputs and targets have the shapes {shapes}, which must be equal")
        present = self.has_target(targets)
        # The gradient is zero where there is no target, because the error is replaced before it is squared.
        errors = torch.where(present.unsqueeze(-1), outputs - targets, 0)
        return errors.square().sum() / (present.sum().clamp(min=1) * self.output_size)

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs

    def metrics(self, per_step: bool) -> Metrics:
        return RegressionMetrics(self.output_size)


def zero_without(loss: Tensor, present: Tensor) -> Tensor:
    """Return a mean loss, or 0 if it is the mean over nothing, which is NaN.

    Args:
        loss: the mean loss over the predictions that have a target.
        present: which predictions have one, bool.
    """
    return torch.where(present.any(), loss, 0)
