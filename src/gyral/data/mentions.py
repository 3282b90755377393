"""Chains of mentions in a text, and the edges between them.

A chain is the list of mentions of one entity, each of one or several words. Its edges join consecutive mentions: an
edge leaves at the last word of a mention and enters at the first word of the next one (Dhingra et al. 2017,
arXiv:1703.02620). Chains of the entities "mary" and "box of chocolates":

    words   mary got the box of chocolates . mary ate the box of chocolates .
    chains   1        2   2      2             1           2   2      2
    edges   0 -----------------------------> 7
                                 5 -----------------> 10
"""

import functools
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from gyral.core.edges import Edge
from gyral.core.errors import UserError

IRREGULAR = {  # plurals of nouns
    **{"mouse": "mice", "goose": "geese", "sheep": "sheep", "deer": "deer"},
    **{"person": "people", "man": "men", "woman": "women", "child": "children"},
}


class Mention(NamedTuple):
    """A mention: the numbers of its first and last word, from 0."""

    first: int
    last: int


Chain: TypeAlias = tuple[Mention, ...]  # the mentions of one entity, in the order of the text


def entity_chains(words: Sequence[str], entities: Iterable[str]) -> dict[str, Chain]:
    """Return the mentions of each entity that occurs in a text, in the order of their first mentions.

    Case is ignored. An entity matches its singular and its plural, which is regular or in `IRREGULAR`. If several
    entities match, the entity with the most words is mentioned, and no word is in two mentions.

    Args:
        words: the words of the text.
        entities: the entities in the singular; the words of an entity are separated by spaces.
    """
    entity_of = _forms(tuple(entities))
    lengths = sorted({len(form) for form in entity_of}, reverse=True)
    begins = {form[0] for form in entity_of}
    lowered = [word.lower() for word in words]
    found: dict[str, list[Mention]] = {}
    start = 0
    while start < len(words):
        for length in lengths if lowered[start] in begins else ():
            entity = entity_of.get(tuple(lowered[start : start + length]))
            if entity is not None:
                found.setdefault(entity, []).append(Mention(start, start + length - 1))
                start += length
                break
        else:
            start += 1
    return {entity: tuple(mentions) for entity, mentions in found.items()}


@functools.lru_cache(maxsize=8)  # consecutive texts have the same entities
def _forms(entities: tuple[str, ...]) -> dict[tuple[str, ...], str]:
    """Return the entities by the words of their singulars and plurals, in lower case."""
    return {tuple(form.split()): each for each in entities for form in (each.lower(), plural(each.lower()))}


def plural(entity: str) -> str:
    """Return the plural of a noun, or of a phrase that ends with a noun."""
    phrase, space, noun = entity.rpartition(" ")
    if noun in IRREGULAR:
        changed = IRREGULAR[noun]
    elif re.search("(s|x|z|ch|sh)$", noun):
        changed = f"{noun}es"
    elif re.search("[^aeiou]y$", noun):
        changed = f"{noun[:-1]}ies"
    elif re.search("[^f]fe?$", noun):
        changed = f"{noun.removesuffix('e')[:-1]}ves"
    else:
        changed = f"{noun}s"
    return f"{phrase}{space}{changed}"


def exact_matches(words: Sequence[str], ignored: Collection[str] = ()) -> list[Chain]:
    """Return the words that occur twice or more as chains, in the order of their first mentions.

    Args:
        words: the words of the text; equal words are mentions of the same entity.
        ignored: words that are not mentions, such as punctuation marks.
    """
    found: dict[str, list[Mention]] = {}
    for number, word in enumerate(words):
        if word not in ignored:
            found.setdefault(word, []).append(Mention(number, number))
    return [tuple(mentions) for mentions in found.values() if len(mentions) > 1]


def chain_edges(chains: Iterable[Chain], kind: int = 1) -> tuple[Edge, ...]:
    """Return the edges between consecutive mentions of each chain.

    Coreference systems find mentions within others, as in "Mary, who lost her hat". A mention that does not begin after
    the end of the one before it gets no edge.

    Args:
        chains: the chains.
        kind: type of the edges, from 1.
    """
    edges = []
    for chain in chains:
        last = -1
        for mention in sorted(chain):
            if mention.first > last:
                if last >= 0:
                    edges.append(Edge(last, mention.first, kind))
                last = mention.last
    return tuple(edges)


def label_chains(chains: Iterable[Chain], steps: int) -> tuple[int, ...]:
    """Return the number of the chain that each word belongs to, from 1; 0: none.

    Args:
        chains: the chains, which are numbered in this order. A word in several of them belongs to the first.
        steps: number of words.
    """
    labels = [0] * steps
    for number, chain in enumerate(chains, start=1):
        for first, last in chain:
            for step in range(first, last + 1):
                labels[step] = labels[step] or number
    return tuple(labels)


def check_chains(name: str, chains: Iterable[Chain], steps: int) -> None:
    """Raise `UserError`, with the name of the document and the mention, if a mention is not within its words."""
    for number, chain in enumerate(chains, start=1):
        for first, last in chain:
            if not 0 <= first <= last < steps:
                raise UserError(
                    f"{name}: mention from word {first} to word {last} of chain {number}: the words must be in order "
                    f"and from 0 to {steps - 1}"
                )
