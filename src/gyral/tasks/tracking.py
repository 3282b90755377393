"""The base of the tasks of state tracking: words of symbols, whose labels follow from all symbols so far."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import Measure, percentage
from gyral.core.options import Increasing, OneOf, PositiveInt, Range
from gyral.data.automata import Automaton
from gyral.data.batching import IGNORED, Batch
from gyral.tasks.data_module import DrawnData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import CategoryMetrics, CategoryShares, answers_of
from gyral.tasks.rendering import align

LABELS = ("every", "end")
BEGIN, END = "^", "="  # names of the symbols around a word
CERTAIN = 1 - 1e-9  # chance accuracy from which on a task is none


class WordsData(DrawnData):
    """Words whose lengths in training and in each test follow from options.

    Args:
        length: symbols of a word in training and validation.
        shortest: symbols of the shortest word in training and validation, whose lengths are then uniform. None: all
            words have `length` symbols.
        test_factors: the tests, as multiples of `length`, such as [1, 2, 4, 8]. The first one has the lengths of
            training, the others one length.
        test_range: shortest and longest word of a further test, whose lengths are uniform. None: no such test.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Attributes:
        most_symbols: the largest length of a word in a test.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"length": 6, "test_factors": [1, 2]}
    most_symbols = 10_000

    length: Annotated[int, Range(1, 10_000)] = 24
    shortest: PositiveInt | None = None
    test_factors: Annotated[Sequence[int], Increasing()] = (1, 2, 4, 8)
    test_range: Annotated[Sequence[int], Increasing(count=2)] | None = None

    def check(self) -> None:
        most = self.most_symbols
        if self.shortest is not None:
            check_integer("shortest", self.shortest, maximum=self.length)
        if self.test_factors[:1] != [1]:
            raise OptionError("test_factors", self.test_factors, "must begin with 1, the lengths of training")
        if self.test_factors[-1] * self.length > most:
            raise OptionError("test_factors", self.test_factors, f"a word has at most {most:,} symbols")
        if self.test_range is not None and self.test_range[1] > most:
            raise OptionError("test_range", self.test_range, f"a word has at most {most:,} symbols")

    def lengths_of_tests(self) -> tuple[list[np.ndarray], list[str]]:
        """Return the lengths of the words of each test, all equally likely, and the names of the tests.

        The first test has the lengths of training.
        """
        longest = [self.length * factor for factor in self.test_factors[1:]]
        ranges = [(self.shortest or self.length, self.length), *zip(longest, longest, strict=True)]
        names = [f"{factor}x" for factor in self.test_factors]
        if self.test_range is not None:
            ranges.append((self.test_range[0], self.test_range[1]))
            names.append("range")
        return [np.arange(low, high + 1) for low, high in ranges], names


def categories_of(rows: int, tests: int, test: int) -> Tensor:
    """Return the categories of a batch: all rows belong to one test, and those of the first one to the split, too."""
    categories = torch.zeros(rows, 1 + tests, dtype=torch.bool)
    categories[:, 0] = test == 0
    categories[:, 1 + test] = True
    return categories


class TrackingData(WordsData):
    """Words of symbols, with a label after each symbol or after the last one.

    Inputs: the begin symbol if `bos`, the word, and the end symbol if there is one label. Tokens: the letters in order,
    then the begin symbol, then the end symbol. A begin symbol has no label.

    Args:
        length, shortest, test_factors, test_range: see `WordsData`.
        bos: whether a begin symbol precedes the word.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Attributes:
        letters: names of the letters; a subclass sets them.
        classes: names of the labels; a subclass sets them.
        end: whether there is one label, at an end symbol that follows the word.
        lengths: the lengths of the words of each test, all equally likely.
        longest: the greatest of these lengths.
        chances: the accuracies by name of a predictor without memory, in training and in each test. It knows the number
            of the step, and returns the most frequent label of this step.
        baseline: the mean entropy of the labels in training, in nats, each given the number of its step alone.

    Raises:
        OptionError: an option is out of bounds, or all words of a test have the same label.
    """

    bos: bool = True
    val_batches = 4
    test_batches = 16

    letters: Sequence[str] = field(init=False)
    classes: Sequence[str] = field(init=False)
    end: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        lengths, self.categories = self.lengths_of_tests()
        self.lengths = [self.lengths_of_words(each) for each in lengths]
        self.tests = len(self.lengths)
        self.longest = max(int(each[-1]) for each in self.lengths)
        self.begin_token, self.end_token = len(self.letters), len(self.letters) + self.bos
        self.inputs = (*self.letters, *[BEGIN] * self.bos, *[END] * self.end)

        frequencies = self.frequencies()
        entropies = -(frequencies * np.log(np.where(frequencies > 0, frequencies, 1))).sum(axis=1)
        self.baseline = self._mean(entropies, self.lengths[0])
        right = frequencies.max(axis=1)
        whole = right if self.end else self.right_words(frequencies.argmax(axis=1))
        tests = [self.lengths[0], *self.lengths]
        self.chances = {
            "last_accuracy": [float(right[lengths - 1].mean()) for lengths in tests],
            "sequence_accuracy": [float(whole[lengths - 1].mean()) for lengths in tests],
            "accuracy": [self._mean(right, lengths) for lengths in tests],
        }
        if max(self.chances["last_accuracy"]) > CERTAIN:
            reason = "all words of a test have the same label, so there is nothing to learn"
            raise OptionError("length", self.length, reason)

    def _mean(self, values: np.ndarray, lengths: np.ndarray) -> float:
        """Return the mean over all labels of words with these lengths of a value that depends on the step, (steps,)."""
        if self.end:
            return float(values[lengths - 1].mean())
        return float(values.cumsum()[lengths - 1].sum() / lengths.sum())

    def lengths_of_words(self, lengths: np.ndarray) -> np.ndarray:
        """Return the lengths of the words of a test, given those that the options name; here the same."""
        return lengths

    @abstractmethod
    def words(self, generator: np.random.Generator, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw words, (B, longest), and the label after each symbol, in the same shape; or, if there is one, (B,).

        Args:
            generator: source of all random numbers.
            lengths: (B,) symbols of each word. What follows the end of a word is ignored.
        """

    @abstractmethod
    def frequencies(self) -> np.ndarray:
        """Return the probability of each label after 1, 2, … symbols, (longest, classes)."""

    def right_words(self, predicted: np.ndarray) -> np.ndarray:
        """Return the probability that all of the first t labels are as predicted, (T,), if each symbol has a label.

        Args:
            predicted: (T,) labels.
        """
        raise NotImplementedError

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        lengths = generator.choice(self.lengths[test], self.size_of(split))
        words, labels = self.words(generator, lengths)
        steps, rows = np.arange(lengths.max()), np.arange(self.size_of(split))
        present = steps < lengths[:, None]
        inputs = np.zeros((self.size_of(split), self.bos + len(steps) + self.end), dtype=np.int64)
        targets = np.full(inputs.shape, IGNORED)
        inputs[:, self.bos : self.bos + len(steps)] = np.where(present, words, 0)
        if self.bos:
            inputs[:, 0] = self.begin_token
        if self.end:
            inputs[rows, self.bos + lengths] = self.end_token
            targets[rows, self.bos + lengths] = labels
        else:
            targets[:, self.bos :] = np.where(present, labels, IGNORED)
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(targets),
            lengths=None if len(self.lengths[test]) == 1 else torch.from_numpy(self.bos + lengths + self.end),
            categories=categories_of(self.size_of(split), self.tests, test),
        )


class AutomatonData(TrackingData):
    """Random words of an automaton, each of whose states has a label.

    Args:
        labels: "every": a label after each symbol; "end": one label, at an end symbol that follows the word.
        length, shortest, test_factors, test_range, bos: see `TrackingData`.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.
    """

    labels: Annotated[str, OneOf(LABELS)] = "every"

    def __post_init__(self) -> None:
        self.machine = self.make_automaton()
        self.letters, self.classes = self.machine.letters, self.machine.classes
        self.end = self.labels == "end"
        super().__post_init__()

    @abstractmethod
    def make_automaton(self) -> Automaton:
        """Return the automaton."""

    def words(self, generator: np.random.Generator, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        letters, labels = self.machine.words(generator.random((len(lengths), lengths.max())))
        return letters, labels[np.arange(len(lengths)), lengths - 1] if self.end else labels

    def frequencies(self) -> np.ndarray:
        return self.machine.frequencies(self.longest)

    def right_words(self, predicted: np.ndarray) -> np.ndarray:
        return self.machine.agreement(predicted)


class TrackingMetrics(CategoryMetrics):
    """Loss, and accuracies; each accuracy also scaled by chance.

    The accuracies are those that `chances` names: `last_accuracy`, the share of words whose last answer is right;
    `sequence_accuracy`, that of words without a wrong answer; `accuracy`, that of right answers; and `length_accuracy`,
    the mean over batches, each with words of one length, of the accuracy of the batch.

    The scaled accuracies are (a − c) / (1 − c), with the accuracy a and the chance c: 0 for a predictor that knows the
    step alone.

    Args:
        categories: see `CategoryMetrics`.
        chances: the chance of each accuracy, in all categories.
    """

    def __init__(self, categories: Sequence[str], chances: Mapping[str, Sequence[float]]) -> None:
        super().__init__(categories)
        self.chances = chances
        self.names = (*CategoryMetrics.names, *chances, *(f"scaled_{name}" for name in chances))
        for name in chances:
            self.add_module(name, CategoryShares(len(self.categories)))

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        """Add one batch: its logits (B, T, classes) and its mean loss."""
        categories, answers = self.membership(batch), answers_of(batch)
        self.update_loss(loss, (batch.targets != IGNORED).sum(), categories)
        correct = (logits.argmax(dim=-1) == batch.targets) & answers
        answered = answers.any(dim=1)
        last = (torch.arange(answers.shape[1], device=answers.device) * answers).argmax(dim=1, keepdim=True)
        share = correct.sum().float() / answers.sum().clamp(min=1)
        shares = {
            "last_accuracy": (correct.gather(1, last).squeeze(1), answered),
            "sequence_accuracy": ((correct == answers).all(dim=1) & answered, answered),
            "accuracy": (correct.sum(dim=1), answers.sum(dim=1)),
            "length_accuracy": (share.expand(len(answers)), answered.any().expand(len(answers))),
        }
        for name in self.chances:
            getattr(self, name).update(*shares[name], categories)

    def compute_categories(self) -> dict[str, Tensor]:
        shares = super().compute_categories()
        chances = {
            f"{name}_{category}": chance
            for name, of_categories in self.chances.items()
            for category, chance in zip(self.categories[1:], of_categories[1:], strict=True)
        }
        return shares | {f"scaled_{name}": _scale(share, chances[name]) for name, share in shares.items()}

    def compute(self) -> dict[str, Tensor]:
        shares = super().compute()
        return shares | {f"scaled_{name}": _scale(shares[name], chances[0]) for name, chances in self.chances.items()}


def _scale(accuracy: Tensor, chance: float) -> Tensor:
    return (accuracy - chance) / (1 - chance)


Data = TypeVar("Data", bound=TrackingData)
ACCURACIES = {"last_accuracy": "last label right", "sequence_accuracy": "all labels right", "accuracy": "accuracy"}
# The tests that reports show, by the ends of their metrics.
REPORTED = {"": "", **{f"_{factor}x": f" at {factor}×" for factor in (2, 4, 8)}, "_range": " in the test range"}


class TrackingTask(DataTask[Data]):
    """A task of state tracking: the label of a step follows from all symbols so far.

    The loss is the cross-entropy in nats over all labels. `last_accuracy` is the share of words whose last label is
    right, `sequence_accuracy` that of words without a wrong label, and `accuracy` that of right labels; each is also
    scaled by chance, as `scaled_last_accuracy`. A test reports them at each length, such as
    `test/last_accuracy_2x` and `test/last_accuracy_range`, and without a suffix at the lengths of training. `chance` is
    that of `last_accuracy`.

    A predictor without memory knows the frequencies of the labels at each step: its loss is their mean entropy, and its
    chance the frequency of the most frequent label. Both follow from the table of transitions. A network also reads the
    letter, which tells the first label of many words: with a label after each symbol, its loss without memory can be
    smaller by this step's share of the words.
    """

    measures: tuple[Measure, ...] = (
        *(
            percentage(f"{name}{test}", f"{label}{length}", at_end=name == "accuracy")
            for name, label in ACCURACIES.items()
            for test, length in REPORTED.items()
        ),
        *(
            Measure(
                f"scaled_last_accuracy{test}",
                f"scaled accuracy of the last label{length}",
                digits=3,
                at_end=test != "_range",  # a published measure
            )
            for test, length in REPORTED.items()
        ),
        percentage("chance", "chance", at_end=True, floor_of="last_accuracy"),
    )

    @classmethod
    def arguments(cls, data: Data) -> dict[str, Any]:
        return {
            "vocabulary_size": len(data.inputs),
            "output_size": len(data.classes),
            "baseline": data.baseline,
            "metrics": TrackingMetrics(data.categories, data.chances),
            "max_writes": data.bos + data.longest + data.end,
        }

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        return {**super().data_metrics(split), "chance": self.data.chances["last_accuracy"][0]}

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        labelled = batch.targets[row] != IGNORED
        steps = batch.inputs.shape[1] if batch.lengths is None else int(batch.lengths[row])
        lines = {"input": [self.data.inputs[token] for token in batch.inputs[row, :steps].tolist()]}
        for name, classes in (("target", batch.targets[row]), ("prediction", predicted[row])):
            lines[name] = [self.data.classes[each] for each in classes[labelled].tolist()]
        return align(lines)
