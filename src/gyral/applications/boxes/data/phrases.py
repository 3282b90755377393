"""Conditional probabilities of phrases, in the form of the denotation graph of Flickr30k.

A line has a phrase x, P(x), a phrase y, P(y), P(x, y) and P(x | y), with tabs between them. The files are those of
github.com/aylai/EntailmentProbabilityEmbedding, data/den_prob (Lai and Hockenmaier, EACL 2017), also packed with gzip.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gyral.applications.boxes.data.files import find_file, read_lines
from gyral.applications.boxes.data.pairs import LabelledPairs
from gyral.core.errors import OptionError

COLUMNS = 6


class Phrases:
    """Numbers of phrases, which grow with the files that are read.

    Attributes:
        numbers: the number of each phrase, in the order in which they were found.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """The phrases in the order of their numbers."""
        return [*self.numbers]

    def read(self, option: str, value: Any, paths: Sequence[str | Path]) -> LabelledPairs:
        """Return the pairs (x, y) of files, with P(x | y).

        Args:
            option: the option that names the files.
            value: its value.
            paths: the files.

        Raises:
            OptionError: a file does not exist, cannot be read, or is not in the form.
        """
        if not paths:
            raise OptionError(option, value, "must name a file, or several")
        pairs, probabilities = [], []
        for path in (Path(str(name)) for name in paths):
            if find_file(path) is None:
                raise OptionError(option, value, f"{path.parent.name}/{path.name}: no such file")
            for number, line in enumerate(read_lines(option, value, path), start=1):
                fields = line.split("\t")
                probability = _probability(fields[-1]) if len(fields) == COLUMNS else None
                if probability is None:
                    form = "a phrase x, P(x), a phrase y, P(y), P(x, y) and P(x | y), with tabs between them"
                    raise OptionError(option, value, f"{path}, line {number}: must be {form}")
                pairs.append([self.numbers.setdefault(fields[place], len(self.numbers)) for place in (0, 2)])
                probabilities.append(probability)
        return LabelledPairs(np.array(pairs, dtype=np.int64), np.array(probabilities))


def _probability(text: str) -> float | None:
    """Return a probability, or None if a text is not a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None
