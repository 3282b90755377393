"""Conditional probabilities of pairs of films from ratings: the share of users who like a among those who like b.

Files have the form of MovieLens: a line for each rating with the numbers of the user and of the film and the rating,
separated by commas (ratings.csv, with a header), by `::` (ratings.dat) or by tabs (u.data). Further columns are
ignored.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError
from gyral.core.inputs import open_input
from gyral.data.batching import mix_seed

SEPARATOR = re.compile("::|[,\t]")
NUMBER = re.compile(r"[-+]?[0-9]{1,9}(\.[0-9]{1,9})?")
USERS, FILMS, TASTES = 2000, 300, 4  # of generated ratings
STRENGTH = 1.5  # of tastes in generated ratings


class Conditionals(NamedTuple):
    """Conditional probabilities.

    Attributes:
        names: names of the n films.
        pairs: (n (n − 1), 2) all pairs (a, b) of different films.
        probabilities: P(a | b) of each.
        generated: whether the ratings are generated.
    """

    names: list[str]
    pairs: np.ndarray
    probabilities: np.ndarray
    generated: bool


def load_conditionals(path: str | Path | None, *, films: int, liked: float, seed: int) -> Conditionals:
    """Return the conditional probabilities of the films that most users like.

    Args:
        path: a file with ratings. None: generated ratings.
        films: number of films.
        liked: the smallest rating of a film that a user likes.
        seed: seed of generated ratings.

    Raises:
        OptionError: the file cannot be read, is not in the form, or has fewer than two films that are liked.
    """
    check_integer("films", films, minimum=2)
    check_real("liked", liked, minimum=0)
    users, items, ratings, names = generate_ratings(seed) if path is None else read_ratings(Path(path))
    likes = np.zeros((users.max() + 1, len(names)), dtype=np.float32)
    likes[users[ratings >= liked], items[ratings >= liked]] = 1
    counts = likes.sum(axis=0)
    chosen = np.sort(np.argsort(-counts, kind="stable")[:films])
    chosen = chosen[counts[chosen] > 0]
    if len(chosen) < 2:
        raise OptionError("liked", liked, "must be a rating that at least two films have")
    both = likes[:, chosen].T @ likes[:, chosen]
    first, second = np.nonzero(~np.eye(len(chosen), dtype=bool))
    probabilities = both[first, second] / counts[chosen][second]
    return Conditionals([names[i] for i in chosen], np.stack((first, second), axis=1), probabilities, path is None)


def generate_ratings(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Generate ratings from 1 to 5, as `read_ratings` returns them, from tastes of users and popularity of films."""
    generator = np.random.default_rng(mix_seed(seed, "ratings"))
    tastes, features = (generator.normal(size=(size, TASTES)) for size in (USERS, FILMS))
    scores = STRENGTH * tastes @ features.T / np.sqrt(TASTES) + generator.normal(size=FILMS)
    ratings = np.clip(np.round(3 + scores + generator.normal(size=scores.shape)), 1, 5)
    users, films = np.nonzero(generator.random(scores.shape) < 0.5)
    return users, films, ratings[users, films], [f"film {number}" for number in range(FILMS)]


def read_ratings(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Return the users and the films of all ratings as numbers from 0, the ratings, and the names of the films.

    Raises:
        OptionError: the file does not exist, cannot be read, or a line is not in the form.
    """
    if not path.exists():
        raise OptionError("ratings", path, "no such file; must be a file of MovieLens, such as ratings.csv")
    users: dict[str, int] = {}
    films: dict[str, int] = {}
    rows: list[tuple[int, int, float]] = []
    with open_input("ratings", path) as file:
        for number, line in enumerate(file, start=1):
            fields = SEPARATOR.split(line.decode(errors="replace").strip("\ufeff \r\n"), 3)
            user, film, rating, *_ = (*fields, "", "", "")
            if not NUMBER.fullmatch(rating):
                if number == 1:  # a header
                    continue
                form = "a user, a film and a rating, separated by commas, tabs or ::"
                raise OptionError("ratings", path, f"line {number}: must be {form}")
            rows.append((users.setdefault(user, len(users)), films.setdefault(film, len(films)), float(rating)))
    if not rows:
        raise OptionError("ratings", path, "has no rating")
    of_user, of_film, ratings = (np.array(column) for column in zip(*rows, strict=True))
    return of_user, of_film, ratings, list(films)
