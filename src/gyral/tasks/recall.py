"""Associative recall: remember which digit follows which letter, and return the digit of one letter.

An example with length 8 (four pairs):

    input       c 9 a 2 d 0 b 9 ? ? a
    target                          2
"""

import math
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gyral.core.errors import OptionError
from gyral.core.measures import ACCURACY, SEQUENCE_ACCURACY, percentage
from gyral.core.options import Range
from gyral.data.batching import IGNORED, Batch
from gyral.tasks.data_module import GeneratedData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import AnswerMetrics

DIGITS = 10
FIRST = "first_pair"


class RecallData(GeneratedData):
    """Inputs: length/2 pairs of a letter and a digit, two question marks, one of the letters.

    No letter occurs in two pairs. Tokens: 0 … length/2 − 1 are letters, then 10 digits, then the question mark.
    Sequences have length + 3 tokens. Only the last step has a target: the digit (0 … 9) of the last letter.

    Args:
        length: T, even number of characters in the pairs, from 2 to 400; 30 and 50 in the paper.
        batch_size, eval_batch_size, train_size, val_size, test_size, data_seed: see
            `gyral.tasks.data_module.GeneratedData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"length": 6}

    length: Annotated[int, Range(2, 400)] = 30
    batch_size = 128
    train_size = 100_000
    val_size = 10_000
    test_size = 20_000

    def check(self) -> None:
        super().check()
        if self.length % 2:
            raise OptionError("length", self.length, "must be even, since letters and digits come in pairs")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pairs = self.length // 2
        self.question = self.pairs + DIGITS

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw input sequences with the answer in an additional last column: (size, length + 4)."""
        letters = torch.rand(size, self.pairs, generator=generator).argsort(dim=1)
        digits = torch.randint(DIGITS, (size, self.pairs), generator=generator)
        asked = torch.randint(self.pairs, (size, 1), generator=generator)
        rows = torch.empty(size, self.length + 4, dtype=torch.uint8)
        rows[:, 0 : self.length : 2] = letters
        rows[:, 1 : self.length : 2] = self.pairs + digits
        rows[:, self.length : self.length + 2] = self.question
        rows[:, -2:-1] = letters.gather(1, asked)
        rows[:, -1:] = digits.gather(1, asked)
        return rows

    def assemble(self, rows: Tensor) -> Batch:
        inputs = rows[:, :-1].long()
        targets = torch.full_like(inputs, IGNORED)
        targets[:, -1] = rows[:, -1]
        return Batch(inputs, targets, targets != IGNORED)


class RecallMetrics(AnswerMetrics):
    """Loss and accuracy; a test also reports the accuracy of questions about the first pair."""

    def __init__(self) -> None:
        super().__init__([FIRST], ("accuracy", "sequence_accuracy"))

    def membership(self, batch: Batch) -> Tensor:
        is_first = batch.inputs[:, -1] == batch.inputs[:, 0]
        return torch.stack([torch.ones_like(is_first), is_first], dim=1)


def informed_guess(pairs: int) -> float:
    """Return the accuracy of the most frequent of the digits shown: the mean over all sequences of its share.

    Counts of digits are independent Poisson variables with mean pairs / 10, given that their sum is that of the pairs.

    Args:
        pairs: the number of pairs, at least 1.
    """
    mean = pairs / DIGITS
    shares = np.array([math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(pairs + 1)])
    # probability that no digit is shown more often, and that the sum is that of the pairs
    at_most = np.zeros(pairs + 1)
    for most in range(1, pairs + 1):
        sums = np.ones(1)
        for _ in range(DIGITS):
            sums = np.convolve(sums, shares[: most + 1])[: pairs + 1]
        at_most[most] = sums[pairs] if len(sums) > pairs else 0.0
    at_most /= at_most[-1]
    return float(np.arange(1, pairs + 1) @ np.diff(at_most)) / pairs


class RecallTask(DataTask[RecallData]):
    """Associative recall (Ba et al. 2016; protocol of Dangovski et al., TACL 2019, section 4.1).

    A predictor without memory guesses the digit: its loss is ln 10, its accuracy 0.1. One that knows which digits were
    shown, but not their letters, answers with the most frequent one of them: `informed_guess` is its accuracy. A test
    also reports `accuracy_first_pair`, the accuracy of questions about the first pair (figure 1A of Dangovski et al.).
    """

    data_class = RecallData
    measures = (
        ACCURACY,
        percentage(f"accuracy_{FIRST}", "accuracy, first pair"),
        SEQUENCE_ACCURACY,
        percentage("informed_guess", "guess among the digits shown", at_end=True, floor_of=ACCURACY.name),
    )

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        return {**super().data_metrics(split), "informed_guess": informed_guess(self.data.pairs)}

    @classmethod
    def arguments(cls, data: RecallData) -> dict[str, Any]:
        return {
            "vocabulary_size": data.question + 1,
            "output_size": DIGITS,
            "baseline": math.log(DIGITS),
            "metrics": RecallMetrics(),
            "max_writes": data.length + 3,
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        tokens = [self._name(token) for token in batch.inputs[row].tolist()]
        gap = " " * (sum(map(len, tokens)) + len(tokens) - 1 - len(tokens[-1]))
        return "\n".join(
            (
                f"input       {' '.join(tokens)}",
                f"target      {gap}{batch.targets[row, -1].item()}",
                f"prediction  {gap}{predicted[row, -1].item()}",
            )
        )

    def _name(self, token: int) -> str:
        if token == self.data.question:
            return "?"
        if token >= self.data.pairs:
            return str(token - self.data.pairs)
        return chr(ord("a") + token) if self.data.pairs <= 26 else f"x{token}"
