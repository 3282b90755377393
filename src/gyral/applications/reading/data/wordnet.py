"""Edges between nouns and their hypernyms in a text, from the files of WordNet (Miller 1995)."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from gyral.applications.reading.data.words import FUNCTION_WORDS
from gyral.core.edges import Edge
from gyral.core.errors import OptionError
from gyral.core.inputs import read_text
from gyral.data.mentions import IRREGULAR

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


@functools.cache  # worker processes read it once
def load(folder: str, depth: int = DEPTH) -> Hypernyms:
    """Return the hypernyms in a folder; see `Hypernyms`."""
    return Hypernyms(folder, depth)


def edges_of(words: Sequence[str], folder: str | None) -> tuple[Edge, ...]:
    """Return `hypernym_edges` of a text without function words for the hypernyms in a folder; none without it."""
    return () if folder is None else hypernym_edges(words, load(folder), FUNCTION_WORDS)


def edge_types(folder: str | Path | None) -> int:
    """Return the number of types of edges: between mentions, and, with the folder of WordNet, the two of hypernyms.

    Raises:
        OptionError: a file of the folder is missing or not in the format.
    """
    if folder is None:
        return 1
    load(str(folder))
    return HYPONYM


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


def _lines(folder: Path, name: str) -> list[str]:
    """Return the lines of a file without the license, which is indented."""
    path = next((each for each in (folder / name, folder / f"{name}.gz") if each.is_file()), None)
    if path is None:
        reason = f"has no {name}: must be the folder of WordNet 3.0 with {' and '.join(FILES)}"
        raise OptionError("hypernyms", folder, reason)
    text = read_text("hypernyms", folder, path)
    return [line for line in text.split("\n") if line and not line.startswith(" ")]
