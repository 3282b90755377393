"""Selective copying: remember the data tokens among many noise tokens, then write them in order.

An example with length 14 and 3 data tokens, where · is the noise and ? the marker:

    input       · 3 · · · 1 · 7 · · · ? ? ?
    target                            3 1 7
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_integer, check_integers
from gyral.core.measures import ACCURACY, SEQUENCE_ACCURACY, percentage
from gyral.core.options import Increasing, OneOf, PositiveInt, Range
from gyral.data.batching import IGNORED, Batch
from gyral.data.drawn import categories_of_test, draw_distinct
from gyral.tasks.data_module import DrawnData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import AnswerMetrics
from gyral.tasks.rendering import align_answers

NOISE = 0


class SelectiveCopyData(DrawnData):
    """Data tokens among noise tokens, and then as many steps in which they are to be written in order.

    Tokens: 0 is the noise, 1 … vocabulary_size − 2 are data, the last one is the marker. Classes: the data tokens,
    from 0.

    Args:
        length: T, number of steps, including those of the answer: 4,096 (Gu and Dao) or 256 (MAD).
        recalled: number of data tokens, ≥ 1.
        vocabulary_size: number of tokens, including noise and marker.
        form: "mamba": the places of the data tokens are uniform, and the input during the answer is the marker.
            "mad": each noise token is before a uniformly drawn data token, so that the last data token is the last one
            before the answer; one marker, then noise during the answer.
        test_lengths: lengths of further tests, with as many data tokens.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"length": 12, "recalled": 3}

    length: PositiveInt = 4096
    recalled: PositiveInt = 16
    vocabulary_size: Annotated[int, Range(4, 10**6)] = 16
    form: Annotated[str, OneOf(("mamba", "mad"))] = "mamba"
    test_lengths: Annotated[Sequence[int], Increasing()] = ()

    def check(self) -> None:
        shortest = 2 * self.recalled + self.marked
        check_integers("test_lengths", self.test_lengths, minimum=shortest)
        check_integer("length", self.length, minimum=shortest)

    @property
    def marked(self) -> bool:
        """Whether a step with the marker precedes the answer."""
        return self.form == "mad"

    def __post_init__(self) -> None:
        self.lengths = [self.length, *self.test_lengths]
        self.categories = list(map(str, self.test_lengths))
        self.marker = self.vocabulary_size - 1
        self.tests = len(self.lengths)

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        rows, length = self.size_of(split), self.lengths[test]
        answer = length - self.recalled  # the first step of the answer
        read = answer - self.marked
        data = generator.integers(1, self.marker, (rows, self.recalled))
        if self.form == "mamba":
            places = np.sort(draw_distinct(generator, 0, read, (rows, self.recalled)), axis=1)
        else:
            shares = np.full(self.recalled, 1 / self.recalled)
            gaps = generator.multinomial(read - self.recalled, shares, rows)
            places = gaps.cumsum(axis=1) + np.arange(self.recalled)

        inputs = np.full((rows, length), NOISE)
        np.put_along_axis(inputs, places, data, axis=1)
        inputs[:, read : answer if self.marked else length] = self.marker
        targets = np.full_like(inputs, IGNORED)
        targets[:, answer:] = data - 1
        categories = categories_of_test(rows, self.tests, test)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), categories=categories)


REPORTED_LENGTHS = (256, 512, 1024, 2048, 4096)  # further tests that reports show


class SelectiveCopyTask(DataTask[SelectiveCopyData]):
    """Selective copying (Gu and Dao 2023, arXiv:2312.00752; Poli et al. 2024, arXiv:2403.17844, "MAD").

    Gu and Dao have 4,096 steps and 16 data tokens of a vocabulary of 16 with noise; two layers of width 64, batches of
    64, 400,000 steps. Their paper leaves open whether the 4,096 steps include the answer and the 16 tokens the marker;
    here they do. The code of MAD (athms/mad-lab, mad/data/instances.py) has another layout, `form=mad`, in which the
    data tokens are nearly evenly spaced, with 256 steps and 12,800 fixed sequences for training.

    A predictor without memory guesses a data token: its loss is ln(vocabulary_size − 2). A test also reports the
    accuracies at further lengths, such as `test/accuracy_1024`.
    """

    data_class = SelectiveCopyData
    measures = (
        ACCURACY,
        *(percentage(f"accuracy_{length}", f"accuracy at {length} steps") for length in REPORTED_LENGTHS),
        SEQUENCE_ACCURACY,
    )

    @classmethod
    def arguments(cls, data: SelectiveCopyData) -> dict[str, Any]:
        return {
            "vocabulary_size": data.vocabulary_size,
            "output_size": data.vocabulary_size - 2,
            "baseline": math.log(data.vocabulary_size - 2),
            "metrics": AnswerMetrics(data.categories, ("accuracy", "sequence_accuracy")),
            "max_writes": max(data.lengths),
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        names = list(map(str, range(1, self.data.marker)))
        return align_answers(batch, predicted, row, ["·", *names, "?"], names)
