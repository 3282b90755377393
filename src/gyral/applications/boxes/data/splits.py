"""Splits of hypernyms: of a hierarchy, with implied pairs for validation and test, or published, of all WordNet."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.applications.boxes.data.hierarchy import Hierarchy
from gyral.applications.boxes.data.pairs import FalsePairs, LabelledPairs
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.inputs import read_text
from gyral.data.batching import mix_seed

WORDNET = "wordnet"  # folder in the data folder; of github.com/Lorraine333/smoothed_box_embedding, data/
FILES = {"train": "wordnet_train.txt", "val": "wordnet_dev.txt", "test": "wordnet_test.txt"}
VOCABULARY = "hypernym_vocab.txt"


class HypernymSplits(NamedTuple):
    """Pairs of general and specific concepts.

    Attributes:
        names: names of the concepts.
        train: (m, 2) true pairs for training.
        false: draws false pairs.
        val, test: labelled pairs.
    """

    names: Sequence[str]
    train: np.ndarray
    false: FalsePairs
    val: LabelledPairs
    test: LabelledPairs


def held_out_splits(
    hierarchy: Hierarchy,
    *,
    negatives: int,
    val_size: int,
    test_size: int,
    seed: int,
    published: LabelledPairs | None = None,
) -> HypernymSplits:
    """Return the splits of a hierarchy.

    The training split is the transitive reduction. Validation and test have different pairs of the rest of the closure.

    Args:
        hierarchy: the hierarchy.
        negatives: false pairs for each true pair in validation and test.
        val_size, test_size: true pairs of validation and test.
        seed: seed of the draws.
        published: replaces the test; its true pairs are left out of validation.

    Raises:
        OptionError: a size is out of bounds.
    """
    check_integer("negatives", negatives)
    sizes = [check_integer("val_size", val_size), 0 if published else check_integer("test_size", test_size)]
    false = FalsePairs(len(hierarchy), hierarchy.closure)
    held_out = hierarchy.implied
    if published:
        held_out = held_out[~np.isin(hierarchy.keys(held_out), hierarchy.keys(published.pairs))]
    if sum(sizes) > len(held_out):
        reason = f"must be at most {len(held_out)} together with test_size, the pairs that the training split implies"
        raise OptionError("val_size", val_size, reason)
    generators = {name: np.random.default_rng(mix_seed(seed, name)) for name in ("held out", "val", "test")}
    val, test, _ = np.split(generators["held out"].permutation(held_out), np.cumsum(sizes))
    return HypernymSplits(
        hierarchy.names,
        hierarchy.reduction,
        false,
        false.label(val, negatives, generators["val"]),
        published or false.label(test, negatives, generators["test"]),
    )


def published_wordnet(data_dir: str | Path) -> HypernymSplits:
    """Return the splits of Li et al. (ICLR 2019) of the closure of all nouns of WordNet 3.0.

    False pairs for training are random; those for validation and test are published. A drawn pair may be one of the
    true pairs of validation and test, as in the code of the paper, because nothing else would say that it is true.

    Args:
        data_dir: the data folder, which has the files in wordnet/.

    Raises:
        OptionError: a file is missing or not in the format.
    """
    folder = Path(data_dir) / WORDNET
    names = _lines(folder, VOCABULARY)
    splits = {split: read_labelled(folder, name, names) for split, name in FILES.items()}
    train = splits["train"].pairs[splits["train"].targets]
    return HypernymSplits(names, train, FalsePairs(len(names), train), splits["val"], splits["test"])


def read_labelled(folder: Path, name: str, names: Sequence[str]) -> LabelledPairs:
    """Return the pairs of a published file, by the numbers of the concepts.

    Its lines have `IsA`, the specific concept, the general concept, and 1 or 0, with tabs between them.

    Args:
        folder: the folder of the file.
        name: the name of the file.
        names: names of the concepts.

    Raises:
        OptionError: the file is missing, is not in the format, or has no true pair.
    """
    numbers = {concept: number for number, concept in enumerate(names)}
    pairs, targets = [], []
    for number, line in enumerate(_lines(folder, name), start=1):
        fields = line.split("\t")
        if len(fields) != 4 or fields[3] not in ("0", "1"):
            raise _wrong(folder, name, number, "must be IsA, two concepts and 0 or 1 with tabs between them")
        if fields[1] not in numbers or fields[2] not in numbers:
            raise _wrong(folder, name, number, f"names a concept that is not in {VOCABULARY}")
        pairs.append((numbers[fields[2]], numbers[fields[1]]))
        targets.append(fields[3] == "1")
    if True not in targets:
        raise OptionError("data_dir", folder.parent, f"{folder / name}: has no true pair")
    return LabelledPairs(np.array(pairs, dtype=np.int64), np.array(targets))


def _wrong(folder: Path, name: str, number: int, reason: str) -> OptionError:
    return OptionError("data_dir", folder.parent, f"{folder / name}, line {number}: {reason}")


def _lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    if not path.exists():
        made = "; python -m gyral.applications.boxes.make_wordnet makes it" if name == FILES["train"] else ""
        raise OptionError("data_dir", folder.parent, f"{folder.name}/{name}: no such file{made}")
    return read_text("data_dir", folder.parent, path).removesuffix("\n").split("\n")
