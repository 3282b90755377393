"""A lattice of concepts: how probable is one concept, given another, if its leaves are equally probable?

An example, in percent:

    input       pet, given predator
    target      50.0
    prediction  48.7
"""

from pathlib import Path

import numpy as np

from gyral.applications.boxes.data.hierarchy import MAMMALS, Hierarchy, load_hierarchy
from gyral.applications.boxes.data.pairs import LabelledPairs
from gyral.applications.boxes.tasks.conditionals import ConditionalData, ConditionalTask
from gyral.core.errors import OptionError

LATTICE = MAMMALS.with_name("lattice.tsv")
LARGEST = 2000  # concepts, of which the task has all pairs


class LatticeData(ConditionalData):
    """All pairs of different concepts of a lattice.

    Args:
        hierarchy: a file of general and specific concepts. None: lattice.tsv of this application.
        root: see `gyral.applications.boxes.data.hierarchy.load_hierarchy`.
        batch_size, eval_batch_size, data_seed: see `gyral.applications.boxes.tasks.conditionals.ConditionalData`.

    Raises:
        UserError: an option is out of bounds, or the file is missing or not in the format.
    """

    hierarchy: str | Path | None = None
    root: str | None = None
    batch_size = 64
    eval_batch_size = 1024

    def __post_init__(self) -> None:
        found = load_hierarchy(LATTICE if self.hierarchy is None else self.hierarchy, self.root)
        if len(found) > LARGEST:
            reason = f"must have at most {LARGEST:,} concepts, not {len(found):,}"
            raise OptionError("hierarchy", self.hierarchy, reason)
        self.names = found.names
        self.splits = dict.fromkeys(("train", "val", "test"), conditionals(found))


class LatticeTask(ConditionalTask):
    """Prediction of all conditional probabilities of a small lattice, after the toy example of box lattices.

    P(a | b) is the share of the leaves below b that are also below a, so that each leaf has the same probability. All
    splits have all pairs of different concepts: the task tells what a model can represent. By default the lattice has
    predators and herbivores, which exclude each other, and pets, which overlap with both. Vilnis et al. (ACL 2018,
    arXiv:1805.06627) show that probabilistic order embeddings cannot represent concepts that exclude each other.

    Args:
        model: makes the model from the number of concepts.
        **options: see `LatticeData`, and `gyral.tasks.base.Task` for optimizer, scheduler, monitor, mode, overfit,
            prefetch.

    Raises:
        UserError: an option is out of bounds, or the file is missing or not in the format.
    """

    data_class = LatticeData


def conditionals(hierarchy: Hierarchy) -> LabelledPairs:
    """Return all pairs of different concepts, with the share of the leaves below b that are also below a."""
    count = len(hierarchy)
    below = np.eye(count, dtype=np.float32)
    below[tuple(hierarchy.closure.T)] = 1
    leaves = below[:, below.sum(axis=1) == 1]
    shares = (leaves @ leaves.T) / leaves.sum(axis=1)
    first, second = np.nonzero(~np.eye(count, dtype=bool))
    return LabelledPairs(np.stack((first, second), axis=1), shares[first, second])
