"""Edges between nouns and their hypernyms in a text, from the files of WordNet (Miller 1995)."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gyral.applications.reading.data.words import FUNCTION_WORDS
from gyral.core.edges import Edge
from gyral.core.errors import OptionError
from gyral.core.inputs import read_text
from gyral.data.mentions import IRREGULAR
from gyral.data.raw_examples import file_state

DEPTH = 3  # levels between a noun and its hypernyms
HYPERNYM, HYPONYM = 2, 3  # types of edges: the later word is more general, or more specific, than the earlier one
FILES = ("data.noun", "index.noun")
POINTERS = ("@", "@i")  # to a hypernym, and from an instance to its class
SINGULARS = {plural: singular for singular, plural in IRREGULAR.items()}
ENDINGS = (("ies", "y"), ("ves", "f"), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"))


class Hypernyms:
    """The hypernyms of English nouns in their most frequent sense.

    Args:
        folder: folder with `data.noun` and `index.noun` of WordNet 3.0, or these files with `.gz`.
        depth: a noun has the hypernyms that are at most this many pointers away; those far up, such as "entity", join
            all nouns.

    Raises:
        OptionError: a file is missing or not in the format.
    """

    def __init__(self, folder: str | Path, depth: int) -> None:
        parents: dict[str, tuple[list[str], list[str]]] = {}  # by offset: words, and offsets of hypernyms
        for line in _lines(Path(folder), "data.noun"):
            fields = line.split("|")[0].split()
            try:
                words = int(fields[3], 16)
                rest = fields[4 + 2 * words :]
                above = [rest[1 + 4 * k + 1] for k in range(int(rest[0])) if rest[1 + 4 * k] in POINTERS]
                parents[fields[0]] = ([word.lower() for word in fields[4 : 4 + 2 * words : 2]], above)
            except (IndexError, ValueError):
                raise OptionError("hypernyms", folder, f"data.noun: not in WordNet's format: {line[:40]}") from None
        self._above: dict[str, frozenset[str]] = {}
        for line in _lines(Path(folder), "index.noun"):
            fields = line.split()
            senses = int(fields[2]) if len(fields) > 5 and re.fullmatch(r"[0-9]{1,4}", fields[2]) else 0
            if not 0 < senses < len(fields) or fields[-senses] not in parents:
                raise OptionError("hypernyms", folder, f"index.noun: not in WordNet's format: {line[:40]}")
            reached, offsets = set[str](), {fields[-senses]}
            for _ in range(depth):
                offsets = {above for offset in offsets for above in parents.get(offset, ((), ()))[1]}
                reached.update(word for offset in offsets if offset in parents for word in parents[offset][0])
            self._above[fields[0].lower()] = frozenset(reached)

    def noun(self, word: str) -> str | None:
        """Return the singular of a noun in lower case, None for another word."""
        lowered = word.lower()
        forms = [SINGULARS.get(lowered, lowered)]
        forms += [lowered.removesuffix(old) + new for old, new in ENDINGS if lowered.endswith(old)]
        forms += [lowered[:-1]] if re.fullmatch(".*[^s]s", lowered) else []
        return next((form for form in forms if form in self._above), None)

    def is_above(self, general: str, specific: str) -> bool:
        """Return whether a noun, in the singular, is a hypernym of another one."""
        return general in self._above[specific]


class Version(NamedTuple):
    """The files of WordNet as they are now; part of the keys of caches.

    Attributes:
        folder: their folder.
        states: the size and the modification time of each file that may be there.
    """

    folder: str
    states: tuple[tuple[int, int], ...]


def find(folder: str | Path | None) -> Version | None:
    """Return the version of WordNet in a folder, or None without one.

    Raises:
        OptionError: a file of the folder is missing or not in the format.
    """
    if folder is None:
        return None
    states = tuple(file_state(path) for name in FILES for path in _paths(Path(folder), name))
    version = Version(str(folder), states)
    load(version)
    return version


@functools.cache  # worker processes read it once
def load(version: Version, depth: int = DEPTH) -> Hypernyms:
    """Return the hypernyms of a version; see `Hypernyms`."""
    return Hypernyms(version.folder, depth)


def edges_of(words: Sequence[str], version: Version | None) -> tuple[Edge, ...]:
    """Return `hypernym_edges` of a text without function words; none without WordNet."""
    return () if version is None else hypernym_edges(words, load(version), FUNCTION_WORDS)


def edge_types(version: Version | None) -> int:
    """Return the number of types of edges: between mentions, and, with WordNet, the two of hypernyms."""
    return 1 if version is None else HYPONYM


def hypernym_edges(words: Sequence[str], hypernyms: Hypernyms, ignored: frozenset[str]) -> tuple[Edge, ...]:
    """Return the edges to each noun from the last earlier noun above it, and from the last one below it.

    Args:
        words: the words of the text.
        hypernyms: the hypernyms.
        ignored: words that are not nouns, such as "i" and "a", which WordNet also has.
    """
    edges, last = [], dict[str, int]()  # the last place of each noun
    for place, word in enumerate(words):
        noun = None if word.lower() in ignored else hypernyms.noun(word)
        if noun is None:
            continue
        more_general = [at for other, at in last.items() if hypernyms.is_above(other, noun)]
        more_specific = [at for other, at in last.items() if hypernyms.is_above(noun, other)]
        for found, kind in ((more_specific, HYPERNYM), (more_general, HYPONYM)):
            if found:
                edges.append(Edge(max(found), place, kind))
        last[noun] = place
    return tuple(edges)


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the paths that a file may have; the first one that exists counts."""
    return folder / name, folder / f"{name}.gz"


def _lines(folder: Path, name: str) -> list[str]:
    """Return the lines of a file without the license, which is indented."""
    path = next((each for each in _paths(folder, name) if each.is_file()), None)
    if path is None:
        reason = f"has no {name}: must be the folder of WordNet 3.0 with {' and '.join(FILES)}"
        raise OptionError("hypernyms", folder, reason)
    text = read_text("hypernyms", folder, path)
    return [line for line in text.split("\n") if line and not line.startswith(" ")]
