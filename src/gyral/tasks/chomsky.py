"""The transductions of the Chomsky hierarchy: read a word, then write its answer, such as its reversal.

An example of task.name=reverse_string; · is the empty symbol, at which the answer is read:

    input       0 1 1 0 1 0 · · · · · ·
    target                  0 1 0 1 1 0

Examples of the others. After $, the end of an answer, symbols do not count in accuracies:

    stack_manipulation          1 1 0 pop push1 pop  → 1 1 $ 0 0 0 0
    solve_equation              ( x + 4 ) = 1        → 2             modulo 5
    duplicate_string            1 0 1                → 1 0 1 1 0 1
    missing_duplicate_string    0 1 1 0 _ 1 1 0      → 0             . follows the word if its length is odd
    odds_first                  0 0 1 1 0 1 0 1      → 0 1 1 1 0 1 0 0
    binary_addition             0 1 + 1 1            → 1 0 1 $ 0 0   least significant bit first: 2 + 3 = 5
    binary_multiplication       0 1 * 1 1            → 0 1 1 $ 0     2 · 3 = 6
    compute_sqrt                1 0 0 1 0 1          → 1 1 0         most significant bit first: 37 and 6
    bucket_sort                 1 0 2 0 4            → 0 0 1 2 4
"""

from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import Measure, percentage
from gyral.core.options import OneOf, Range
from gyral.data.batching import IGNORED, Batch, DrawnBatches
from gyral.data.transductions import TRANSDUCTIONS
from gyral.tasks.data_task import DataTask
from gyral.tasks.rendering import align_answers
from gyral.tasks.tracking import CERTAIN, REPORTED, TrackingMetrics, WordsData, categories_of

EMPTY = "·"
ESTIMATED = 16  # lengths of a test at which frequencies are estimated if there is no formula


class ChomskyData(WordsData):
    """Random words, and as many empty symbols as the answer has symbols. All words of a batch have the same length.

    The length is drawn in training; the batches of a validation and of a test have evenly spread lengths.

    Tokens: the symbols of the word in order, then the empty symbol. See `gyral.data.transductions` for the
    definitions.

    Args:
        name: stack_manipulation, reverse_string, solve_equation, duplicate_string, missing_duplicate_string,
            odds_first, binary_addition, binary_multiplication, compute_sqrt or bucket_sort.
        length: symbols of the longest word in training and validation.
        shortest: symbols of the shortest word in training and validation, whose lengths are then uniform; at least 3
            for equations and arithmetic, and 2 for missing_duplicate_string. None: all words have `length` symbols.
        test_factors: the tests, as multiples of `length`, such as [1, 2, 4, 8]. The first one has the lengths of
            training, the others one length.
        test_range: shortest and longest word of a further test, whose lengths are uniform; [41, 500] in the
            publication. None: no such test.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Attributes:
        lengths: the lengths of the words of each test, all equally likely.
        most_steps: the most steps of a word and its answer.
        baseline: the mean entropy of the symbols of the answers in training, in nats, each given its place and the
            length of the word.
        chances: the accuracies by name, in training and in each test, of a predictor that knows no more than the place
            and the length, and returns the most frequent symbol.

    Raises:
        OptionError: an option is out of bounds, or all words of a test have the same answer.
    """

    most_symbols = 1000

    name: Annotated[str, OneOf(TRANSDUCTIONS)] = "reverse_string"
    length: Annotated[int, Range(1, 1000)] = 40
    shortest = 1
    batch_size = 128
    val_batches = 8
    test_batches = 16

    def check(self) -> None:
        fewest = TRANSDUCTIONS[self.name].shortest
        check_integer("length", self.length, minimum=fewest)
        super().check()
        if self.test_range is not None and self.test_range[1] < fewest:
            raise OptionError("test_range", self.test_range, f"a word has at least {fewest} symbols")

    def __post_init__(self) -> None:
        self.transduction = TRANSDUCTIONS[self.name]()
        lengths, self.categories = self.lengths_of_tests()
        self.lengths = [each[each >= self.transduction.shortest] for each in lengths]
        self.tests = len(self.lengths)
        longest = max(int(each[-1]) for each in self.lengths)
        self.most_steps = longest + self.transduction.answer_length(longest)
        self.inputs = (*self.transduction.inputs, EMPTY)
        self.classes = self.transduction.outputs
        self._describe()
        if max(self.chances["accuracy"]) > CERTAIN:
            reason = "all words of a test have the same answer, so there is nothing to learn"
            raise OptionError("length", self.length, reason)

    def _describe(self) -> None:
        """Compute the baseline and the chances."""
        described = []
        for place, lengths in enumerate(self.lengths):
            if not self.transduction.exact and len(lengths) > ESTIMATED:
                lengths = lengths[np.linspace(0, len(lengths) - 1, ESTIMATED).astype(int)]
            found = [self.transduction.frequencies(length) for length in lengths.tolist()]
            hits, counted = (np.array([getattr(each, name) for each in found]) for name in ("hits", "counted"))
            whole = float(np.mean([each.whole for each in found]))
            described.append((whole, float(hits.sum() / counted.sum()), float((hits / counted).mean())))
            if place == 0:
                answers = np.concatenate([each.answers for each in found])
                entropies = -(answers * np.log(np.where(answers > 0, answers, 1))).sum(axis=1)
                self.baseline = float(entropies.mean())
        names = ("sequence_accuracy", "accuracy", "length_accuracy")
        self.chances = {
            name: [values[0], *values] for name, values in zip(names, zip(*described, strict=True), strict=True)
        }

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        return self._draw(generator, self.size_of(split), test, int(generator.choice(self.lengths[test])))

    def _batches(self, split: str, length: int) -> DrawnBatches[Batch]:
        if split == "train":
            return super()._batches(split, length)
        count = self.test_batches if split == "test" else self.val_batches

        def draw(generator: np.random.Generator, index: int) -> Batch:
            test, place = divmod(index, count)
            lengths = self.lengths[test]
            chosen = lengths[(2 * place + 1) * len(lengths) // (2 * count)]
            return self._draw(generator, self.size_of(split), test, int(chosen))

        return DrawnBatches(draw, seed=self.data_seed, name=split, length=length)

    def _draw(self, generator: np.random.Generator, size: int, test: int, length: int) -> Batch:
        """Draw a batch of `size` words of one length."""
        words, answers, counted = self.transduction.draw(generator, length, size)
        empty = len(self.transduction.inputs)
        inputs = np.pad(words, ((0, 0), (0, answers.shape[1])), constant_values=empty)
        before = ((0, 0), (length, 0))
        targets = np.pad(answers, before, constant_values=IGNORED)
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(targets),
            answers=None if counted is None else torch.from_numpy(np.pad(counted, before)),
            categories=categories_of(size, self.tests, test),
        )


ACCURACIES = {
    "length_accuracy": "accuracy, mean over lengths",
    "accuracy": "symbols right",
    "sequence_accuracy": "all symbols right",
}


class ChomskyTask(DataTask[ChomskyData]):
    """The transductions of Delétang et al. (2023), arXiv:2207.02098, with the alphabets of their code.

    There, words have 1 to 40 symbols in training and 41 to 500 in the test, batches have 128 words of one length, and
    training has 1,000,000 steps with Adam, gradients of norm at most 1, and learning rates of 1e-4, 3e-4 and 5e-4. The
    score is the accuracy, averaged over the lengths of the test, of the best of 30 runs; a task is solved from 90 % on.
    This score is `test/length_accuracy_range` with `test_range=[41,500]`; with `test_batches=460` each length has one
    batch.
    In their code, as here, the answer of odds_first begins with the second symbol of the word, and in their paper with
    the first one. The regular tasks of the paper and modular arithmetic with brackets are `gyral.tasks.regular` and
    `gyral.tasks.modular_arithmetic_brackets`.

    The loss is the mean cross-entropy in nats over all symbols of the answer, also after its end. `accuracy` is the
    share of right symbols up to the end, `length_accuracy` the mean over lengths of that share, and
    `sequence_accuracy` the share of answers without a wrong symbol; each is also scaled by chance, as
    `scaled_accuracy`. A test reports them at each length, such as `test/accuracy_2x`.

    A predictor without memory knows the place in the answer and the length of the word. Its loss and its chance are
    exact, except for binary_multiplication, for which they are estimated from words of a fixed seed, since products
    have no formula and too many pairs to enumerate. Both are means over all lengths. An evaluation has one
    length in each batch, and 16 batches of 1 to 40 symbols have a chance that differs by up to 0.02. In bucket_sort it
    is already right at 90 % of the symbols for 41 to 500 symbols, since the sorted symbols of a long word depend little
    on the word.
    """

    data_class = ChomskyData
    measures: tuple[Measure, ...] = (
        *(
            percentage(f"{name}{test}", f"{label}{length}", at_end=name == "sequence_accuracy")
            for name, label in ACCURACIES.items()
            for test, length in REPORTED.items()
        ),
        *(
            Measure(f"scaled_length_accuracy{test}", f"scaled accuracy{length}", digits=3, at_end=True)
            for test, length in REPORTED.items()
        ),
        percentage("chance", "chance", at_end=True, floor_of="length_accuracy"),
    )

    @classmethod
    def arguments(cls, data: ChomskyData) -> dict[str, Any]:
        return {
            "vocabulary_size": len(data.inputs),
            "output_size": len(data.classes),
            "baseline": data.baseline,
            "metrics": TrackingMetrics(data.categories, data.chances),
            "max_writes": data.most_steps,
        }

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        return {**super().data_metrics(split), "chance": self.data.chances["length_accuracy"][0]}

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        answered = batch._replace(answers=batch.targets != IGNORED)
        return align_answers(answered, predicted, row, self.data.inputs, self.data.classes)
