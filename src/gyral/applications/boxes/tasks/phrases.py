"""Phrases of captions: how probable is it that a phrase describes a picture, given that another phrase describes it?

An example, in percent:

    input       person ride skateboard, given windowsill
    target      9.1
    prediction  7.6
"""

import logging
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from gyral.applications.boxes.data.phrases import Phrases
from gyral.applications.boxes.tasks.conditionals import ConditionalData, ConditionalTask, draw_splits
from gyral.core.measures import SUBSTITUTE
from gyral.core.options import PositiveInt

log = logging.getLogger(__name__)


class PhrasesData(ConditionalData):
    """Pairs of phrases.

    Args:
        test: a file of pairs, see `gyral.applications.boxes.data.phrases`.
        train: a file of pairs, or several. None: pairs of `test` that are in no other split.
        val: a file of pairs. None: drawn from the pairs that are for training.
        val_size: pairs of validation if they are drawn. None: a tenth.
        test_size: pairs of test if training has no file. None: a tenth of the pairs of `test`.
        batch_size, eval_batch_size, data_seed: see
            `gyral.applications.boxes.tasks.conditionals.ConditionalData`; `data_seed` is also the seed of the splits.

    Attributes:
        substitute: whether the pairs of training are from the test file.

    Raises:
        UserError: an option is out of bounds, or a file is missing or not in the form.
    """

    small: ClassVar = {"val_size": 12, "test_size": 12}

    test: str | Path = field()
    train: str | Path | Sequence[str | Path] | None = None
    val: str | Path | None = None
    val_size: PositiveInt | None = None
    test_size: PositiveInt | None = None

    def __post_init__(self) -> None:
        phrases = Phrases()
        of_test = phrases.read("test", self.test, [self.test])
        if self.train is None:
            splits = draw_splits(of_test, {"val": self.val_size, "test": self.test_size}, self.data_seed)
            log.warning("train= is not given; training on pairs of the test, not comparable to published results")
        else:
            paths = [self.train] if isinstance(self.train, str | Path) else list(self.train)
            of_train = phrases.read("train", self.train, paths)
            splits = draw_splits(of_train, {"val": self.val_size}, self.data_seed) | {"test": of_test}
        if self.val is not None:
            splits["val"] = phrases.read("val", self.val, [self.val])
            if self.train is not None:
                splits["train"] = of_train
        self.names, self.splits, self.substitute = phrases.names, splits, self.train is None


class PhrasesTask(ConditionalTask):
    """Prediction of the conditional probabilities of phrases of Flickr30k (Lai and Hockenmaier, EACL 2017).

    A phrase is one concept: a model has no representation of words, so a phrase that is not in training keeps its
    initial embedding. Without training files, the pairs of the test file are split at random, and the task logs the
    metric `substitute` = 1.

    Args:
        model: makes the model from the number of phrases.
        **options: see `PhrasesData`, and `gyral.tasks.base.Task` for optimizer, scheduler, monitor, mode, overfit,
            prefetch.

    Raises:
        UserError: an option is out of bounds, or a file is missing or not in the form.
    """

    data_class = PhrasesData
    data: PhrasesData
    remarks = (SUBSTITUTE,)

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        return {**super().data_metrics(split), "substitute": float(self.data.substitute)}
