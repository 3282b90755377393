"""Hierarchies of concepts: their transitive reduction and closure, read from a list of pairs or from WordNet.

A list of pairs is a text file with the general and the specific concept on each line and a tab between them; lines that
begin with `#` are comments. mammals.tsv beside this module is an example: the mammals of WordNet 3.0.
"""

from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from gyral.applications.boxes.data.wordnet import read_hypernyms
from gyral.core.errors import OptionError, UserError, suggest_name
from gyral.core.extras import import_extra
from gyral.core.inputs import read_text

networkx = import_extra("networkx", "a hierarchy of concepts", "applications")
MAMMALS = Path(__file__).with_name("mammals.tsv")


class Hierarchy:
    """A hierarchy of concepts: a directed acyclic graph from general to specific concepts.

    Args:
        pairs: general and specific concepts by name. Pairs that follow from other pairs may be absent.

    Attributes:
        names: names of the n concepts, sorted.

    Raises:
        UserError: there is no pair, or a concept is more general than itself.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._graph = networkx.DiGraph(pairs)
        if not self._graph:
            raise UserError("a hierarchy must have at least one pair of concepts")
        if not networkx.is_directed_acyclic_graph(self._graph):
            circle = " → ".join(general for general, _ in networkx.find_cycle(self._graph))
            raise UserError(f"a concept must not be more general than itself: {circle}")
        self.names = sorted(self._graph)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def below(self, concept: str) -> "Hierarchy":
        """Return the hierarchy of the concepts below one, without this concept.

        Concepts that are only in pairs with it are also left out.

        Raises:
            UserError: there is no pair.
            KeyError: the concept is unknown.
        """
        self._numbers[concept]
        return Hierarchy(self._graph.subgraph(networkx.descendants(self._graph, concept)).edges)

    @cached_property
    def reduction(self) -> np.ndarray:
        """(m, 2) numbers of general and specific concepts: the transitive reduction, which implies all other pairs."""
        return self.encode(networkx.transitive_reduction(self._graph).edges)

    @cached_property
    def closure(self) -> np.ndarray:
        """(m, 2) numbers of general and specific concepts: the transitive closure, all pairs that are true."""
        return self.encode(networkx.transitive_closure_dag(self._graph).edges)

    @cached_property
    def implied(self) -> np.ndarray:
        """(m, 2) the pairs of the closure that are not in the reduction."""
        return self.closure[~np.isin(self.keys(self.closure), self.keys(self.reduction))]

    @cached_property
    def path_count(self) -> int:
        """Number of paths from general to specific concepts: that of the closure, if each pair counts once a path."""
        paths: dict[str, int] = {}
        for concept in networkx.topological_sort(self._graph):
            paths[concept] = sum(1 + paths[general] for general in self._graph.predecessors(concept))
        return sum(paths.values())

    def encode(self, pairs: Iterable[tuple[str, str]]) -> np.ndarray:
        """Return pairs of names as numbers (m, 2) in increasing order.

        Raises:
            KeyError: a name is unknown.
        """
        found = sorted((self._numbers[general], self._numbers[specific]) for general, specific in pairs)
        return np.array(found, dtype=np.int64).reshape(-1, 2)

    def keys(self, pairs: np.ndarray) -> np.ndarray:
        """Return a unique number for each pair (…, 2)."""
        return pairs[..., 0] * len(self) + pairs[..., 1]


def load_hierarchy(source: str | Path | None = None, root: str | None = None) -> Hierarchy:
    """Return a hierarchy.

    Args:
        source: a file with a list of pairs, or WordNet's folder with data.noun. None: the mammals of WordNet 3.0.
        root: the concept whose descendants are used, such as mammal.n.01. None: all concepts are used.

    Raises:
        UserError: the file or the folder does not exist, cannot be read, or has no hierarchy below `root`.
    """
    path = MAMMALS if source is None else Path(source)
    if not path.exists():
        raise OptionError(
            "hierarchy", source, "no such file; must be a list of pairs or WordNet's folder with data.noun"
        )
    try:
        found = _mammals() if source is None else Hierarchy(read_hypernyms(path) if path.is_dir() else read_pairs(path))
    except OptionError:
        raise
    except UserError as error:
        raise OptionError("hierarchy", path, str(error)) from None
    if root is None:
        return found
    if root not in found.names:
        raise OptionError("root", root, f"{suggest_name(root, found.names)}must be a concept of the hierarchy")
    try:
        return found.below(root)
    except UserError:
        raise OptionError("root", root, "must have hyponyms that have hyponyms") from None


@cache
def _mammals() -> Hierarchy:
    return Hierarchy(read_pairs(MAMMALS))


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the pairs of a list.

    Raises:
        UserError: the file cannot be read, or a line is not a pair.
    """
    pairs = []
    for number, line in enumerate(read_text("hierarchy", path).split("\n"), start=1):
        if line.startswith("#") or not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != 2 or not all(fields):
            raise UserError(f"line {number}: must be a general concept, a tab and a specific concept")
        pairs.append((fields[0], fields[1]))
    return pairs
