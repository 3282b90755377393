"""Films that users like together: the probability that a user likes a film given that the user likes another film.

An example, in percent:

    input       film 12, given film 7
    target      31.5
    prediction  29.8
"""

import logging
from pathlib import Path
from typing import Any, ClassVar

from gyral.applications.boxes.data.ratings import load_conditionals
from gyral.applications.boxes.tasks.conditionals import ConditionalTask, draw_splits
from gyral.core.checks import check_integer
from gyral.core.measures import SUBSTITUTE

log = logging.getLogger(__name__)


class RatingsTask(ConditionalTask):
    """Prediction of the conditional probabilities of films that users like, after Li et al. (ICLR 2019, section 4.4).

    The probability P(a | b) is the share of users who like a among those who like b. The pairs of the splits are drawn
    at random. Without a file, the task generates ratings and logs the metric `substitute` = 1.

    Args:
        model: makes the model from the number of films.
        ratings: a file of MovieLens, such as u.data or ratings.csv. None: generated ratings.
        titles, films, liked: see `gyral.applications.boxes.data.ratings.load_conditionals`.
        sampled_pairs, val_size, test_size: see `gyral.applications.boxes.tasks.conditionals.draw_splits`.
        batch_size, eval_batch_size, data_seed: see
            `gyral.applications.boxes.tasks.conditionals.ConditionalData`; `data_seed` is also the seed of the splits
            and of generated ratings.
        **options: see `gyral.tasks.base.Task`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds, or a file cannot be read or is not in the form.
    """

    remarks = (SUBSTITUTE,)
    small: ClassVar = {"films": 12, "val_size": 12, "test_size": 12}

    def __init__(
        self,
        model: Any,
        *,
        ratings: str | Path | None = None,
        titles: str | Path | None = None,
        films: int = 286,
        liked: float = 4.0,
        sampled_pairs: int | None = None,
        val_size: int | None = None,
        test_size: int | None = None,
        batch_size: int = 512,
        eval_batch_size: int = 8192,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        check_integer("data_seed", data_seed, minimum=0)
        found = load_conditionals(ratings, titles=titles, films=films, liked=liked, seed=data_seed)
        splits = draw_splits(found.labelled, {"val": val_size, "test": test_size}, data_seed, sampled_pairs)
        if found.generated:
            log.warning("ratings= is not given; using generated ratings, which are not comparable to published results")
        self.generated = found.generated
        sizes: dict[str, Any] = {"batch_size": batch_size, "eval_batch_size": eval_batch_size}
        super().__init__(model, found.names, splits, data_seed=data_seed, **sizes, **options)

    def data_metrics(self) -> dict[str, float]:
        return {**super().data_metrics(), "substitute": float(self.generated)}
