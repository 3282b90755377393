"""Conditional probabilities of pairs of films from ratings: the share of users who like a among those who like b.

Files have the form of MovieLens: a line for each rating with the numbers of the user and of the film and the rating,
separated by commas (ratings.csv, with a header), by `::` (ratings.dat) or by tabs (u.data). Further columns are
ignored. Titles are in a second file: movies.csv, movies.dat or u.item, which has `|` between its columns.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.applications.boxes.data.pairs import LabelledPairs
from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError
from gyral.core.inputs import open_input
from gyral.data.batching import mix_seed

SEPARATOR = re.compile("::|[,\t]")
OF_TITLES = re.compile(r"::|\|")
NUMBER = re.compile(r"[-+]?[0-9]{1,9}(\.[0-9]{1,9})?")
USERS, FILMS, TASTES = 2000, 300, 4  # of generated ratings
STRENGTH = 1.5  # of tastes in generated ratings


class Conditionals(NamedTuple):
    """Conditional probabilities.

    Attributes:
        names: names of the n films.
        labelled: all n (n − 1) pairs (a, b) of different films with P(a | b).
        generated: whether the ratings are generated.
    """

    names: list[str]
    labelled: LabelledPairs
    generated: bool


def load_conditionals(
    path: str | Path | None, *, films: int, liked: float, seed: int, titles: str | Path | None = None
) -> Conditionals:
    """Return the conditional probabilities of the films that most users like.

    Args:
        path: a file with ratings. None: generated ratings.
        films: number of films.
        liked: the smallest rating of a film that a user likes.
        seed: seed of generated ratings.
        titles: a file with the titles of films, which are their names then. None: their names are their numbers.

    Raises:
        OptionError: a file cannot be read, is not in the form, or has fewer than two films that are liked.
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
    if titles is not None:
        known = read_titles(Path(titles))
        names = [known.get(name, name) for name in names]
    both = likes[:, chosen].T @ likes[:, chosen]
    first, second = np.nonzero(~np.eye(len(chosen), dtype=bool))
    probabilities = both[first, second] / counts[chosen][second]
    labelled = LabelledPairs(np.stack((first, second), axis=1), probabilities)
    return Conditionals([names[i] for i in chosen], labelled, path is None)


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
        raise OptionError("ratings", path, "no such file; must be a file of MovieLens, such as u.data or ratings.csv")
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


def read_titles(path: Path) -> dict[str, str]:
    """Return the titles of films by their numbers, which are the first two columns of a file.

    Raises:
        OptionError: the file does not exist, cannot be read, or a line is not in the form.
    """
    if not path.exists():
        raise OptionError("titles", path, "no such file; must be a file of MovieLens, such as u.item or movies.csv")
    titles = {}
    with open_input("titles", path) as file:
        for number, content in enumerate(file, start=1):
            line = _decode(content).strip("\ufeff \r\n")
            film, title, *_ = (*OF_TITLES.split(line, 2), "")
            if not title:  # "film,title,genres", where a title with commas is in quotes
                film, _, rest = line.partition(",")
                title = rest.rpartition(",")[0].strip('"')
            if not title:
                form = "a film and its title, separated by |, :: or a comma, and another column"
                raise OptionError("titles", path, f"line {number}: must be {form}")
            titles[film] = title
    return titles


def _decode(line: bytes) -> str:
    """Return a line as text: newer files are in UTF-8, older ones in Latin-1."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")
