"""Films that users like together: the probability that a user likes a film given that the user likes another film.

An example, in percent:

    input       film 12, given film 7
    target      31.5
    prediction  29.8
"""

import logging
from pathlib import Path
from typing import Annotated, ClassVar

from gyral.applications.boxes.data.ratings import load_conditionals
from gyral.applications.boxes.tasks.conditionals import ConditionalData, ConditionalTask, draw_splits
from gyral.core.measures import SUBSTITUTE
from gyral.core.options import PositiveInt, Range

log = logging.getLogger(__name__)


class RatingsData(ConditionalData):
    """Pairs of films.

    Args:
        ratings: a file of MovieLens, such as u.data or ratings.csv. None: generated ratings.
        titles, films, liked: see `gyral.applications.boxes.data.ratings.load_conditionals`.
        sampled_pairs, val_size, test_size: see `gyral.applications.boxes.tasks.conditionals.draw_splits`.
        batch_size, eval_batch_size, data_seed: see
            `gyral.applications.boxes.tasks.conditionals.ConditionalData`; `data_seed` is also the seed of the splits
            and of generated ratings.

    Attributes:
        generated: whether the ratings are generated.

    Raises:
        UserError: an option is out of bounds, or a file cannot be read or is not in the form.
    """

    small: ClassVar = {"films": 12, "val_size": 12, "test_size": 12}

    ratings: str | Path | None = None
    titles: str | Path | None = None
    films: Annotated[int, Range(2)] = 286
    liked: Annotated[float, Range(0)] = 4.0
    sampled_pairs: PositiveInt | None = None
    val_size: PositiveInt | None = None
    test_size: PositiveInt | None = None

    def __post_init__(self) -> None:
        sizes, seed = {"val": self.val_size, "test": self.test_size}, self.data_seed
        found = load_conditionals(self.ratings, titles=self.titles, films=self.films, liked=self.liked, seed=seed)
        if found.generated:
            log.warning("ratings= is not given; using generated ratings, which are not comparable to published results")
        self.names, self.generated = found.names, found.generated
        self.splits = draw_splits(found.labelled, sizes, seed, self.sampled_pairs)


class RatingsTask(ConditionalTask):
    """Prediction of the conditional probabilities of films that users like, after Li et al. (ICLR 2019, section 4.4).

    The probability P(a | b) is the share of users who like a among those who like b. The pairs of the splits are drawn
    at random. Without a file, the task generates ratings and logs the metric `substitute` = 1.

    Args:
        model: makes the model from the number of films.
        **options: see `RatingsData`, and `gyral.tasks.base.Task` for optimizer, scheduler, monitor, mode, overfit,
            prefetch.

    Raises:
        UserError: an option is out of bounds, or a file cannot be read or is not in the form.
    """

    data_class = RatingsData
    data: RatingsData
    remarks = (SUBSTITUTE,)

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        return {**super().data_metrics(split), "substitute": float(self.data.generated)}
