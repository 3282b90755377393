"""Multi-query associative recall: read pairs of a key and a value, then return the value of each key once more.

An example with length 16 and two pairs; · is the filler:

    input       4 8 2 7 · · 2 · · · · · 4 · · ·
    target                  7           8
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import ACCURACY, SEQUENCE_ACCURACY, percentage
from gyral.core.options import Increasing, OneOf, PositiveInt, Range
from gyral.data.batching import Batch
from gyral.data.drawn import categories_of_test, draw_distinct
from gyral.tasks.data_module import DrawnData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import AnswerMetrics
from gyral.tasks.rendering import align_answers

FILLER = 0


class MqarData(DrawnData):
    """Pairs of a key and a value at the beginning; each key occurs once more, and its value is the target there.

    Tokens: 0 is the filler, 1 … vocabulary_size/2 − 1 are keys, the others are values. The keys of a sequence are
    distinct, and so are its values. A key occurs again 2g steps after the end of the pairs, g = 0, 1, …; the g of a
    sequence are drawn without replacement, with probabilities ∝ (g + 1)^(power − 1).

    Args:
        length: T, number of steps, at least four per pair.
        pairs: number of pairs of a key and a value.
        vocabulary_size: number of tokens, even. They are also the classes.
        power: exponent a of the power law of the gaps, > 0; 1: uniform.
        filler: what fills the steps without a key or value: "zeros", token 0, or "random", tokens of the whole
            vocabulary. A random token may be a key of the sequence; it has no target.
        test_lengths: lengths of further tests, whose number of pairs grows with the length, such as [128, 256].
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"length": 16, "pairs": 2, "vocabulary_size": 40}

    length: Annotated[int, Range(4)] = 64
    pairs: PositiveInt = 4
    vocabulary_size: Annotated[int, Range(4, 10**6)] = 8192
    power: Annotated[float, Range(above=0)] = 0.01
    filler: Annotated[str, OneOf(("zeros", "random"))] = "zeros"
    test_lengths: Annotated[Sequence[int], Increasing(4)] = ()
    test_batches = 47

    def check(self) -> None:
        check_integer("pairs", self.pairs, maximum=self.length // 4)
        most = max(pairs for _, pairs in self.sizes)
        check_integer("vocabulary_size", self.vocabulary_size, minimum=2 * most + 2, maximum=10**6)
        if self.vocabulary_size % 2:
            raise OptionError("vocabulary_size", self.vocabulary_size, "must be even: half of the tokens are values")

    def __post_init__(self) -> None:
        self.categories = list(map(str, self.test_lengths))
        self.longest = max(length for length, _ in self.sizes)
        self.first_value = self.vocabulary_size // 2
        self.tests = len(self.sizes)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The length and the number of pairs of each test."""
        lengths = (self.length, *self.test_lengths)
        return [(length, max(1, self.pairs * length // self.length)) for length in lengths]

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        rows, (length, pairs) = self.size_of(split), self.sizes[test]
        keys = draw_distinct(generator, 1, self.first_value, (rows, pairs))
        values = draw_distinct(generator, self.first_value, self.vocabulary_size, (rows, pairs))
        weights = np.arange(1, (length - 2 * pairs) // 2 + 1) ** (self.power - 1)
        # The order of exponential variables with these rates is that of draws without replacement with these weights.
        gaps = (generator.standard_exponential((rows, len(weights))) / weights).argsort(axis=1)[:, :pairs]
        asked = 2 * (pairs + gaps)

        if self.filler == "random":
            inputs = generator.integers(0, self.vocabulary_size, (rows, length))
        else:
            inputs = np.full((rows, length), FILLER)
        inputs[:, 0 : 2 * pairs : 2] = keys
        inputs[:, 1 : 2 * pairs : 2] = values
        np.put_along_axis(inputs, asked, keys, axis=1)
        order = asked.argsort(axis=1)
        # A head of 8,192 classes at every step would take most of the time.
        targets, steps = (torch.from_numpy(np.take_along_axis(each, order, axis=1)) for each in (values, asked))
        categories = categories_of_test(rows, self.tests, test)
        return Batch(torch.from_numpy(inputs), targets, categories=categories, steps=steps)


REPORTED_LENGTHS = (128, 256, 512, 1024, 2048)  # further tests that reports show


class MqarTask(DataTask[MqarData]):
    """Multi-query associative recall (Arora et al. 2023, arXiv:2312.04927).

    The published lengths and numbers of pairs are (64, 4), (128, 8) and (256, 16), with 100,000 fixed sequences for
    training and 3,000 for the test; here training repeats no sequence, and a test has 47 · 64 = 3,008. Models are
    trained for at most 64 passes with AdamW, weight decay 0.1 and four learning rates from 1e-4 to 1e-2; they have two
    layers of width 64 to 512 without feed-forward networks.

    The sources disagree on the filler: the generator of the authors (HazyResearch/zoology,
    zoology/data/multiquery_ar.py) fills gaps with random tokens by default, and the configuration of their figure 2
    with zeros, as here. Beck et al. (2024, arXiv:2405.04517) have up to 256 pairs in 2,048 steps.

    A predictor without memory guesses one of the values: its loss is ln(vocabulary_size / 2). A test also reports the
    accuracies at further lengths, such as `test/accuracy_128` and `test/sequence_accuracy_128`. Set
    `model.embedding_size`, because a one-hot vector of 8,192 tokens is slow.
    """

    data_class = MqarData
    measures = (
        ACCURACY,
        *(percentage(f"accuracy_{length}", f"accuracy at {length} steps") for length in REPORTED_LENGTHS),
        SEQUENCE_ACCURACY,
    )

    @classmethod
    def arguments(cls, data: MqarData) -> dict[str, Any]:
        return {
            "vocabulary_size": data.vocabulary_size,
            "output_size": data.vocabulary_size,
            "baseline": math.log(data.vocabulary_size - data.first_value),
            "metrics": AnswerMetrics(data.categories, ("accuracy", "sequence_accuracy")),
            "max_writes": data.longest,
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        names = ["·", *map(str, range(1, self.data.vocabulary_size))]
        return align_answers(batch, predicted, row, names, ["0", *names[1:]])
