"""Phrases of captions: how probable is it that a phrase describes a picture, given that another phrase describes it?

An example, in percent:

    input       person ride skateboard, given windowsill
    target      9.1
    prediction  7.6
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from gyral.applications.boxes.data.phrases import Phrases
from gyral.applications.boxes.tasks.conditionals import ConditionalTask, draw_splits
from gyral.core.checks import check_integer
from gyral.core.measures import SUBSTITUTE

log = logging.getLogger(__name__)


class PhrasesTask(ConditionalTask):
    """Prediction of the conditional probabilities of phrases of Flickr30k (Lai and Hockenmaier, EACL 2017).

    A phrase is one concept: a model has no representation of words, so a phrase that is not in training keeps its
    initial embedding. Without training files, the pairs of the test file are split at random, and the task logs the
    metric `substitute` = 1.

    Args:
        model: makes the model from the number of phrases.
        test: a file of pairs, see `gyral.applications.boxes.data.phrases`.
        train: a file of pairs, or several. None: pairs of `test` that are in no other split.
        val: a file of pairs. None: drawn from the pairs that are for training.
        val_size: pairs of validation if they are drawn. None: a tenth.
        test_size: pairs of test if training has no file. None: a tenth of the pairs of `test`.
        batch_size, eval_batch_size, data_seed: see
            `gyral.applications.boxes.tasks.conditionals.ConditionalData`; `data_seed` is also the seed of the splits.
        **options: see `gyral.tasks.base.Task`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds, or a file is missing or not in the form.
    """

    remarks = (SUBSTITUTE,)
    small: ClassVar = {"val_size": 12, "test_size": 12}

    def __init__(
        self,
        model: Any,
        *,
        test: str | Path,
        train: str | Path | Sequence[str | Path] | None = None,
        val: str | Path | None = None,
        val_size: int | None = None,
        test_size: int | None = None,
        batch_size: int = 512,
        eval_batch_size: int = 8192,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        check_integer("data_seed", data_seed, minimum=0)
        phrases = Phrases()
        of_test = phrases.read("test", test, [test])
        if train is None:
            splits = draw_splits(of_test, {"val": val_size, "test": test_size}, data_seed)
            log.warning("train= is not given; training on pairs of the test, not comparable to published results")
        else:
            of_train = phrases.read("train", train, [train] if isinstance(train, str | Path) else list(train))
            splits = draw_splits(of_train, {"val": val_size}, data_seed) | {"test": of_test}
        if val is not None:
            splits["val"] = phrases.read("val", val, [val])
            if train is not None:
                splits["train"] = of_train
        self.substitute = train is None
        sizes: dict[str, Any] = {"batch_size": batch_size, "eval_batch_size": eval_batch_size}
        super().__init__(model, phrases.names, splits, data_seed=data_seed, **sizes, **options)

    def data_metrics(self) -> dict[str, float]:
        return {**super().data_metrics(), "substitute": float(self.substitute)}
