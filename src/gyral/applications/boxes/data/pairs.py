"""Labelled pairs of concepts: true pairs of a hierarchy with random false pairs, and published lists."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.applications.boxes.data.hierarchy import Hierarchy
from gyral.core.errors import OptionError, UserError
from gyral.core.inputs import excerpt, read_text

ATTEMPTS = 8  # draws of another concept for a false pair, before the concept on the other side is replaced
LAST_ATTEMPT = 1000
FOLDER = Path("wordnet") / "pytorch_box"  # in the data folder; of github.com/Lorraine333/pytorch_box, data/
NAMES, POSITIVES, NEGATIVES = (f"mammal_closure_{kind}.tsv" for kind in ("vocab", "pos", "neg"))
PUBLISHED_NEGATIVES = 10  # per positive pair in the published list


class ConceptBatch(NamedTuple):
    """A batch of B pairs of concepts (a, b).

    Attributes:
        inputs: (B, 2) integers, the numbers of a and b. For hypernyms, a is the general and b the specific concept.
        targets: (B,) in [0, 1], P(a | b). For hypernyms, 1 where every b is an a, else 0.
    """

    inputs: Tensor
    targets: Tensor


class LabelledPairs(NamedTuple):
    """Pairs of concepts (n, 2) and the probability of each, (n,)."""

    pairs: np.ndarray
    targets: np.ndarray

    def batches(self, size: int) -> "PairBatches":
        """Return one pass over the pairs in batches of a size."""
        return PairBatches(self, size)

    def batch(self, rows: slice | np.ndarray) -> ConceptBatch:
        """Return some of the pairs as a batch."""
        targets = torch.from_numpy(self.targets[rows].astype(np.float32))
        return ConceptBatch(torch.from_numpy(self.pairs[rows].astype(np.int64)), targets)


class PairBatches:
    """One pass over labelled pairs in order; the last batch may be smaller."""

    def __init__(self, labelled: LabelledPairs, size: int) -> None:
        self.labelled = labelled
        self.size = size

    def __len__(self) -> int:
        return -(-len(self.labelled.pairs) // self.size)

    def __iter__(self) -> Iterator[ConceptBatch]:
        for start in range(0, len(self.labelled.pairs), self.size):
            yield self.labelled.batch(slice(start, start + self.size))


class FalsePairs:
    """Draws false pairs by replacing one concept of a true pair.

    The specific concept is replaced in one half of the false pairs of each true pair, and the general one in the other
    half, as in the published list. If no concept that makes a pair false is found in a few draws, the concept on the
    other side is replaced: placental.n.01 is true of most mammals.

    Args:
        concepts: n, number of concepts.
        true: (m, 2) the pairs that are true, the closure of the hierarchy.
    """

    def __init__(self, concepts: int, true: np.ndarray) -> None:
        self.concepts = concepts
        self._true = np.sort(self._key(true))

    def is_false(self, pairs: np.ndarray) -> np.ndarray:
        """Return which pairs (k, 2) are false: neither true nor twice the same concept."""
        keys = self._key(pairs)
        places = np.searchsorted(self._true, keys).clip(max=len(self._true) - 1)
        return (self._true[places] != keys) & (pairs[:, 0] != pairs[:, 1])

    def draw(self, true: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return `count` false pairs for each of the true pairs (k, 2), in their order: (k · count, 2).

        Raises:
            UserError: there are too few false pairs.
        """
        sources = true.repeat(count, axis=0)
        side = 1 - np.arange(len(sources)) % count * 2 // count if count > 1 else 1 - np.arange(len(sources)) % 2
        pairs, missing = sources.copy(), np.arange(len(sources))
        for attempt in range(1, LAST_ATTEMPT):
            if attempt % ATTEMPTS == 0:
                side[missing] = 1 - side[missing]
            pairs[missing] = sources[missing]
            pairs[missing, side[missing]] = generator.integers(self.concepts, size=len(missing))
            missing = missing[~self.is_false(pairs[missing])]
            if not len(missing):
                return pairs
        raise UserError("there are too few concepts to draw false pairs")

    def label(self, true: np.ndarray, count: int, generator: np.random.Generator) -> LabelledPairs:
        """Return true pairs (k, 2), followed by `count` false pairs for each."""
        false = self.draw(true, count, generator)
        return LabelledPairs(np.concatenate([true, false]), np.arange(len(true) + len(false)) < len(true))

    def _key(self, pairs: np.ndarray) -> np.ndarray:
        keys: np.ndarray = pairs[:, 0] * self.concepts + pairs[:, 1]
        return keys


def published_mammals(data_dir: str | Path, hierarchy: Hierarchy, negatives: int) -> LabelledPairs:
    """Return the evaluation pairs of Li et al. (ICLR 2019): 209 of the closure, with up to 10 random false pairs each.

    Args:
        data_dir: the data folder, which has the files in wordnet/pytorch_box.
        hierarchy: the mammals.
        negatives: false pairs for each true pair, which alternate between the two kinds of `FalsePairs`.

    Raises:
        UserError: a file is missing, is not in the format, or names another concept; or there are too few false pairs.
    """
    if negatives > PUBLISHED_NEGATIVES:
        reason = f"must be at most {PUBLISHED_NEGATIVES} with task.test=published"
        raise OptionError("negatives", negatives, reason)
    folder = Path(data_dir) / FOLDER
    names = dict(_rows(folder / NAMES))
    true, false = (
        [(names.get(a, a), names.get(b, b)) for a, b in _rows(folder / name)] for name in (POSITIVES, NEGATIVES)
    )
    unknown = {name for pair in (*true, *false) for name in pair} - set(hierarchy.names)
    if unknown:
        reason = f"{folder}: {excerpt([min(unknown)])} is not in the hierarchy; task.test=published needs the mammals"
        raise OptionError("test", "published", reason)
    if len(false) != PUBLISHED_NEGATIVES * len(true):
        reason = f"{folder / NEGATIVES}: must have {PUBLISHED_NEGATIVES} pairs for each of {POSITIVES}"
        raise OptionError("test", "published", reason)
    in_turn = np.arange(PUBLISHED_NEGATIVES).reshape(2, -1).T.ravel()[:negatives]
    taken = [false[PUBLISHED_NEGATIVES * row + place] for row in range(len(true)) for place in sorted(in_turn)]
    numbers = {name: number for number, name in enumerate(hierarchy.names)}
    pairs = np.array([(numbers[general], numbers[specific]) for general, specific in (*true, *taken)], dtype=np.int64)
    return LabelledPairs(pairs, np.arange(len(pairs)) < len(true))


def _rows(path: Path) -> list[tuple[str, str]]:
    """Return the two columns of a file."""
    if not path.exists():
        raise OptionError("test", "published", f"{path}: no such file")
    rows = [line.split("\t") for line in read_text("test", "published", path).removesuffix("\n").split("\n")]
    wrong = next((number for number, row in enumerate(rows, start=1) if len(row) != 2), None)
    if wrong is not None:
        reason = f"{path}, line {wrong}: must have two columns with a tab between them"
        raise OptionError("test", "published", reason)
    return [(first, second) for first, second in rows]
