"""Repeat copy: read a sequence of binary vectors and a number, then write the sequence that number of times.

An example with two vectors of 4 bits and 3 repeats, one row for each channel of inputs and targets:

    start         1 · · · · · · · · · ·
    bits          · 1 0 · · · · · · · ·
                  · 0 1 · · · · · · · ·
                  · 0 1 · · · · · · · ·
                  · 1 1 · · · · · · · ·
    repeats       · · · 3 · · · · · · ·

    target              1 0 1 0 1 0 0
                        0 1 0 1 0 1 0
                        0 1 0 1 0 1 0
                        1 1 1 1 1 1 0
    end marker          0 0 0 0 0 0 1
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from torch import Tensor

from gyral.core.measures import SEQUENCE_ACCURACY, WRONG_BITS, percentage
from gyral.core.options import Increasing, Range
from gyral.data.batching import Batch
from gyral.data.drawn import answer_batch
from gyral.tasks.data_module import DrawnData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import BitMetrics
from gyral.tasks.objective import Bits
from gyral.tasks.rendering import align, describe_bits


class RepeatCopyData(DrawnData):
    """Binary vectors to repeat. The length and the number of repeats of each row are uniform in their ranges.

    Inputs (B, T, bits + 2): the bits, the start flag, and the number of repeats divided by `repeats_scale`, which
    follows the last vector. Targets (B, T, bits), or bits + 1 with the end marker.

    Args:
        bits: size of a vector.
        lengths: smallest and largest number of vectors in training.
        repeats: smallest and largest number of repeats in training.
        test_lengths: lengths of further tests, which have the repeats of training.
        test_repeats: numbers of repeats of further tests, which have the lengths of training.
        end_marker: whether a marker on a separate channel follows the last vector of the answer.
        repeats_scale: the number of repeats whose input is 1.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    bits: Annotated[int, Range(1, 10_000)] = 4
    lengths: Annotated[Sequence[int], Increasing(count=2)] = (1, 2)
    repeats: Annotated[Sequence[int], Increasing(count=2)] = (1, 2)
    test_lengths: Annotated[Sequence[int], Increasing()] = ()
    test_repeats: Annotated[Sequence[int], Increasing()] = ()
    end_marker: bool = True
    repeats_scale: Annotated[float, Range(above=0)] = 10.0
    batch_size = 16

    def __post_init__(self) -> None:
        trained = tuple(self.lengths), tuple(self.repeats)
        # The ranges of lengths and repeats of each test.
        self.ranges = [
            trained,
            *(((length, length), trained[1]) for length in self.test_lengths),
            *((trained[0], (count, count)) for count in self.test_repeats),
        ]
        self.categories = [*map(str, self.test_lengths), *(f"{count}_repeats" for count in self.test_repeats)]
        self.longest = max(longest for (_, longest), _ in self.ranges)
        self.tests = len(self.ranges)

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        lengths, repeats = (generator.integers(low, high + 1, self.size_of(split)) for low, high in self.ranges[test])
        rows = np.arange(self.size_of(split))
        vectors = generator.integers(0, 2, (self.size_of(split), lengths.max(), self.bits))

        questions = np.zeros((self.size_of(split), lengths.max() + 2, self.bits + 2), dtype=np.float32)
        questions[:, 1:-1, : self.bits] = vectors
        questions[:, 0, -2] = 1
        questions[rows, lengths + 1] = 0
        questions[rows, lengths + 1, -1] = repeats / self.repeats_scale

        answered = lengths * repeats
        place = np.arange(answered.max() + 1) % lengths[:, None]
        answers = np.zeros((*place.shape, self.bits + self.end_marker), dtype=np.float32)
        answers[..., : self.bits] = np.take_along_axis(vectors, place[..., None], axis=1)
        if self.end_marker:
            answers[rows, answered] = 0
            answers[rows, answered, -1] = 1
        categories = np.zeros((self.size_of(split), len(self.ranges)), dtype=bool)
        categories[:, test] = True
        return answer_batch(questions, lengths + 2, answers, answered + self.end_marker, 0, categories=categories)


REPORTED_LENGTHS, REPORTED_REPEATS = (3, 4, 20, 30, 50, 80, 120), (3, 4)  # further tests that reports show


class RepeatCopyTask(DataTask[RepeatCopyData]):
    """The repeat copy task, in the form of the code of Graves et al. (2016): google-deepmind/dnc, dnc/repeat_copy.py.

    With `repeats: [1, 1]`, `repeats_scale: 1` and no end marker it is the copy task of Graves et al. (2014),
    arXiv:1410.5401, section 4.1; the number of repeats is the delimiter.

    The loss is the cross-entropy per bit over the answer. A test also reports the share of wrong bits and of sequences
    without a wrong bit for further lengths, such as `test/wrong_bits_120`, and for further numbers of repeats, such as
    `test/wrong_bits_5_repeats`. A predictor without memory guesses the bits with a loss of ln 2 each or, if there is
    an end marker, with the entropy of their frequencies.
    """

    data_class = RepeatCopyData
    measures = (
        WRONG_BITS,
        *(
            percentage(f"wrong_bits_{count}", f"wrong bits, {count} vectors", 2, higher_is_better=False)
            for count in REPORTED_LENGTHS
        ),
        *(
            percentage(f"wrong_bits_{count}_repeats", f"wrong bits, {count} repeats", 2, higher_is_better=False)
            for count in REPORTED_REPEATS
        ),
        SEQUENCE_ACCURACY,
    )

    @classmethod
    def arguments(cls, data: RepeatCopyData) -> dict[str, Any]:
        return {
            "input_size": data.bits + 2,
            "objective": Bits(data.bits + data.end_marker),
            "metrics": BitMetrics(data.categories),
            "baseline": _memoryless_loss(data),
            "max_writes": data.longest + 2,
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        answered = self.objective.has_target(batch.targets[row])
        assert batch.write is not None
        _, *vectors, delimiter = batch.inputs[row][batch.write[row]].tolist()
        repeats = round(delimiter[-1] * self.data.repeats_scale)
        lines = {"input": ["(", *(describe_bits(vector[: self.data.bits]) for vector in vectors), f"×{repeats}"]}
        for name, values in (("target", batch.targets[row]), ("prediction", predicted[row])):
            lines[name] = [describe_bits(vector) for vector in values[answered].tolist()]
        return align(lines)


def _memoryless_loss(data: RepeatCopyData) -> float:
    """Return the loss per bit of a predictor that knows the frequencies of ones in the answers, but no inputs."""
    if not data.end_marker:
        return math.log(2)
    vectors = math.prod((low + high) / 2 for low, high in data.ranges[0])  # the mean number per answer
    marker = 1 / (1 + vectors)
    return (data.bits * _entropy((1 - marker) / 2) + _entropy(marker)) / (data.bits + 1)


def _entropy(probability: float) -> float:
    """Return the entropy of a bit in nats."""
    return -sum(each * math.log(each) for each in (probability, 1 - probability))
