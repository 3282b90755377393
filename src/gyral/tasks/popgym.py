"""Supervised tasks of POPGym on the suits of dealt cards: repeat the first or an earlier one, or reverse all of them.

An example of task.name=repeat_previous with k = 4, for the suits s, d, c and h:

    input       c s h h d s c …
    target            c s h h …

The first card and the reversal, of a deck of 4 cards instead of 52; | is the last card of the deck, - a step without:

    repeat_first    c s h        autoencode    c s h d| - - -
                    c c c                            d  h s c
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.measures import ACCURACY, SEQUENCE_ACCURACY, percentage
from gyral.core.options import Increasing, OneOf, PositiveInt, Range
from gyral.data.batching import IGNORED, Batch
from gyral.data.drawn import categories_of_test
from gyral.tasks.data_module import DrawnData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import AnswerMetrics
from gyral.tasks.rendering import align_answers

NAMES = ("repeat_previous", "repeat_first", "autoencode")
SUITS = 4
CARDS = 52  # of a deck


class PopgymData(DrawnData):
    """The suits of shuffled decks, in the order in which they are dealt.

    The sequences are the observations of POPGym, and the targets the actions that it rewards. Tokens: the four suits.
    With N cards, `repeat_previous` and `repeat_first` have N − 1 steps, because the last card is not played.
    `autoencode` has 2N − 1 steps and 8 tokens, a second four for the phase of the answer: the first token of this
    phase is the last card, which is also the first target, and the others are the suit 0.

    Args:
        name: repeat_previous, repeat_first or autoencode.
        decks: decks of 52 cards. Easy, medium and hard are 1, 2 and 3 decks; for repeat_first, 1, 8 and 16.
        k: repeat_previous: the target is the suit of k − 1 steps ago; 4, 32 and 64 for easy, medium and hard.
        test_decks: numbers of decks of further tests.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    name: Annotated[str, OneOf(NAMES)] = "repeat_previous"
    decks: Annotated[int, Range(1, 10_000)] = 1
    k: PositiveInt = 4
    test_decks: Annotated[Sequence[int], Increasing()] = ()

    def check(self) -> None:
        check_integer("k", self.k, maximum=CARDS * min([self.decks, *self.test_decks]) - 1)

    def __post_init__(self) -> None:
        self.decks_of_tests = [self.decks, *self.test_decks]
        self.categories = [f"{count}_decks" for count in self.test_decks]
        self.tests = len(self.decks_of_tests)

    def length(self, decks: int) -> int:
        """Return the number of steps with a number of decks."""
        return (2 if self.name == "autoencode" else 1) * CARDS * decks - 1

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        cards, steps = CARDS * self.decks_of_tests[test], self.length(self.decks_of_tests[test])
        suits = generator.permuted(np.tile(np.arange(cards) % SUITS, (self.size_of(split), 1)), axis=1)
        targets = np.full((self.size_of(split), steps), IGNORED)
        inputs = suits[:, :-1]
        if self.name == "repeat_previous":
            targets[:, self.k - 1 :] = inputs[:, : steps - self.k + 1]
        elif self.name == "repeat_first":
            targets[:] = inputs[:, :1]
        else:
            targets[:, cards - 1 :] = suits[:, ::-1]
            inputs = np.full_like(targets, SUITS)
            inputs[:, : cards - 1] = suits[:, :-1]
            inputs[:, cards - 1] += suits[:, -1]
        categories = categories_of_test(self.size_of(split), self.tests, test)
        return Batch(torch.from_numpy(inputs.copy()), torch.from_numpy(targets), categories=categories)


class PopgymTask(DataTask[PopgymData]):
    """RepeatPrevious, RepeatFirst and Autoencode of POPGym (Morad et al. 2023, arXiv:2303.01859), supervised.

    The publication trains by reinforcement (PPO, 15 million steps, memory of 256) and rewards each right action
    alike; here the loss is the cross-entropy of the right actions, which is much easier. The documentation of
    RepeatPrevious calls k = 0 the current card; in its code (proroklab/popgym, popgym/envs/repeat_previous.py) and
    here, this is k = 1. Accuracy a is the return 2a − 1 of a policy.

    A predictor without memory guesses the suit: its loss is ln 4. A test also reports the accuracies with further
    numbers of decks, such as `test/accuracy_2_decks`.
    """

    data_class = PopgymData
    measures = (
        ACCURACY,
        *(percentage(f"accuracy_{count}_decks", f"accuracy, {count} decks") for count in (2, 3, 8, 16)),
        SEQUENCE_ACCURACY,
    )

    @classmethod
    def arguments(cls, data: PopgymData) -> dict[str, Any]:
        return {
            "vocabulary_size": (2 if data.name == "autoencode" else 1) * SUITS,
            "output_size": SUITS,
            "baseline": math.log(SUITS),
            "metrics": AnswerMetrics(data.categories, ("accuracy", "sequence_accuracy")),
            "max_writes": data.length(max(data.decks_of_tests)),
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        suits = list("sdch")
        answering = ["-", "d|", "c|", "h|"]
        return align_answers(batch, predicted, row, [*suits, *answering], suits)
