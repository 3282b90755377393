"""Induction heads: return the token that followed the special token.

An example with length 10, where ! is the special token:

    input       7 2 2 ! 9 0 4 9 1 !
    target                        9
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gyral.core.measures import ACCURACY, percentage
from gyral.core.options import Increasing, Range
from gyral.data.batching import IGNORED, Batch
from gyral.data.drawn import categories_of_test
from gyral.tasks.data_module import DrawnData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import AnswerMetrics
from gyral.tasks.rendering import align_answers


class InductionData(DrawnData):
    """Uniform ordinary tokens, with the special token at a uniform step and again at the end.

    The special token is the last one of the vocabulary. The first time, it is neither of the last two steps. Only the
    last step has a target: the token after the first special token.

    Args:
        length: T ≥ 3, number of steps.
        vocabulary_size: number of tokens, including the special token.
        test_lengths: lengths of further tests; 2⁶, …, 2²⁰ in the paper.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"length": 6, "test_lengths": [8]}

    length: Annotated[int, Range(3)] = 256
    vocabulary_size: Annotated[int, Range(3, 10**6)] = 16
    test_lengths: Annotated[Sequence[int], Increasing(3)] = (64, 1024, 4096)

    def __post_init__(self) -> None:
        self.lengths = [self.length, *self.test_lengths]
        self.categories = list(map(str, self.test_lengths))
        self.special = self.vocabulary_size - 1
        self.tests = len(self.lengths)

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        rows, length = np.arange(self.size_of(split)), self.lengths[test]
        inputs = generator.integers(0, self.special, (len(rows), length))
        places = generator.integers(0, length - 2, len(rows))
        inputs[rows, places] = inputs[:, -1] = self.special
        targets = np.full_like(inputs, IGNORED)
        targets[:, -1] = inputs[rows, places + 1]
        categories = categories_of_test(len(rows), self.tests, test)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), categories=categories)


REPORTED_LENGTHS = tuple(2**exponent for exponent in (6, *range(9, 21)))  # further tests that reports show


class InductionTask(DataTask[InductionData]):
    """Induction heads (Fu et al. 2022, arXiv:2212.14052), with the lengths of Gu and Dao (2023, arXiv:2312.00752).

    Gu and Dao train at length 256 with 16 tokens and test at 2⁶ to 2²⁰; Mamba is exact at all of them. Here the 16
    tokens include the special token. A predictor without memory guesses an ordinary token: its loss is
    ln(vocabulary_size − 1). A test also reports the accuracy at further lengths, such as `test/accuracy_1024`.
    """

    data_class = InductionData
    measures = (
        ACCURACY,
        *(percentage(f"accuracy_{length}", f"accuracy at {length} steps") for length in REPORTED_LENGTHS),
    )

    @classmethod
    def arguments(cls, data: InductionData) -> dict[str, Any]:
        return {
            "vocabulary_size": data.vocabulary_size,
            "output_size": data.special,
            "baseline": math.log(data.special),
            "metrics": AnswerMetrics(data.categories, ("accuracy", "sequence_accuracy")),
            "max_writes": max(data.lengths),
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        names = list(map(str, range(self.data.special)))
        return align_answers(batch, predicted, row, [*names, "!"], names)
