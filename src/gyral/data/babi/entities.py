"""Entities of the bAbI stories, and their mentions."""

import functools
from collections.abc import Iterable

from gyral.core.checks import check_choice
from gyral.core.edges import Edge
from gyral.data.babi import synthetic
from gyral.data.babi.stories import Question, Sentence
from gyral.data.mentions import Chain, Mention, chain_edges, entity_chains

# Each entity of the release, and the entity of another world that replaces it in bAbI-Mix.
PEOPLE = {  # tasks 1–14, 15, 16 and 20
    **{"mary": "maria", "john": "jonas", "daniel": "david", "sandra": "susan", "bill": "bob", "fred": "frank"},
    **{"jeff": "jack", "julie": "judith", "gertrude": "greta", "winona": "wilma", "emily": "emma"},
    **{"jessica": "janet", "lily": "laura", "julius": "justin", "greg": "george", "brian": "brad"},
    **{"bernhard": "benedict", "sumit": "samir", "yann": "yusuf", "jason": "james", "antoine": "andre"},
}
OBJECTS = {"football": "basketball", "milk": "juice", "apple": "banana", "pajamas": "slippers"}
PLACES = {
    **{"kitchen": "pantry", "garden": "yard", "office": "study", "bathroom": "washroom", "bedroom": "nursery"},
    **{"hallway": "lobby", "school": "college", "park": "beach", "cinema": "theater"},
}
ANIMALS = {  # tasks 15 and 16
    **{"mouse": "rat", "wolf": "fox", "cat": "dog", "sheep": "deer"},
    **{"frog": "toad", "lion": "tiger", "swan": "goose", "rhino": "hippo"},
}
COLORS = {"yellow": "brown", "white": "black", "gray": "purple", "green": "orange"}  # of the animals of task 16
SHAPES = {"square": "hexagon", "rectangle": "pentagon", "sphere": "cube", "triangle": "circle"}  # task 17
SHAPE_COLORS = {"red": "crimson", "blue": "navy", "pink": "violet", "yellow": "brown"}
CONTAINERS = {"box": "crate", "chest": "trunk", "suitcase": "bag", "container": "barrel", "chocolate": "praline"}
GENERATED = {  # of `gyral.data.babi.synthetic`
    **dict(zip(map(str.lower, synthetic.PEOPLE), ("anna", "bruno", "clara", "dogan"), strict=True)),
    **dict(zip(synthetic.PLACES, ("loft", "vault", "archive", "meadow", "barn", "forge"), strict=True)),
    **dict(zip(synthetic.THINGS, ("bucket", "rope", "candle"), strict=True)),
}


def _words(*tables: dict[str, str]) -> tuple[str, ...]:
    return tuple(word for table in tables for pair in table.items() for word in pair)


NAMES = _words(PEOPLE, OBJECTS, PLACES, GENERATED)
ENTITIES = {
    "names": NAMES,
    "all": (
        *NAMES,
        *_words(ANIMALS, COLORS, SHAPES, CONTAINERS),
        *(f"{color} {shape}" for color in _words(SHAPE_COLORS) for shape in _words(SHAPES)),
        *("box of chocolates", "crate of pralines"),
    ),
}
"""Entities by their kind. "names": people, objects and places; "all": also animals, colors, shapes and containers."""

EDGES = ("entities", "none")  # edges between consecutive mentions of an entity; no edges


class EntityMentions:
    """The mentions of entities in stories. Pronouns do not count.

    Args:
        entities: the entities, as `gyral.data.mentions.entity_chains` expects them.
    """

    def __init__(self, entities: Iterable[str]) -> None:
        known = tuple(entities)
        self._of_sentence = functools.cache(lambda words: entity_chains(words, known))  # sentences repeat

    @classmethod
    def of(cls, kind: str) -> "EntityMentions":
        """Return the mentions of a kind of entities.

        Raises:
            OptionError: the kind is not one of `ENTITIES`.
        """
        return cls(ENTITIES[check_choice("entities", kind, tuple(ENTITIES))])

    def chains(self, question: Question) -> dict[str, Chain]:
        """Return the chain of each entity in a story and its question, which are one sequence of words."""
        found: dict[str, list[Mention]] = {}
        start = 0
        for sentence in (*question.story, question.words):
            for entity, mentions in self._of_sentence(sentence).items():
                found.setdefault(entity, []).extend(Mention(start + first, start + last) for first, last in mentions)
            start += len(sentence)
        return {entity: tuple(mentions) for entity, mentions in found.items()}

    def edges(self, question: Question) -> tuple[Edge, ...]:
        """Return the edges between consecutive mentions of each entity in a story and its question."""
        return chain_edges(self.chains(question).values())

    def sentence_edges(self, question: Question) -> tuple[Edge, ...]:
        """Return the edges between consecutive sentences that mention the same entity; the question is the last one."""
        sentence = [number for number, words in enumerate((*question.story, question.words)) for _ in words]
        # two sentences may have several entities in common
        found = dict.fromkeys(Edge(sentence[edge.source], sentence[edge.target]) for edge in self.edges(question))
        return tuple(edge for edge in found if edge.source < edge.target)


def lowered(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """Return the words of sentences in lower case, as one sequence."""
    return tuple(word.lower() for sentence in sentences for word in sentence)
