"""Questions about scenes, from templates, with their programs and answers."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from gyral.applications.scenes.data.language import ATTRIBUTES, CONCEPTS, NOUNS, RELATIONS, SYNONYMS, TYPES, Step
from gyral.applications.scenes.data.world import Scene

Value = TypeVar("Value")
TRIES = 200  # draws of a question of one type, before another type is drawn
PHRASES = {"left": "left of", "right": "right of", "behind": "behind", "front": "in front of"}
ASKED = {
    "shape": ("what shape is the {}", "what is the shape of the {}"),
    "color": ("what color is the {}", "what is the color of the {}"),
    "size": ("what size is the {}", "how-big is the {}"),
    "material": ("what material is the {}", "what is the {} made of"),
}
EXIST = (("is there a {}", False), ("are there any {}", True))
COUNT = (("how many {} are there", True), ("what number of {} are there", True))
COMPARED = {
    "more": "are there more {} than {}",
    "fewer": "are there fewer {} than {}",
    "equal_number": "are there the same number of {} and {}",
}
EQUAL = ("does the {} have the same {attribute} as the {}", "is the {attribute} of the {} the same as that of the {}")
TEMPLATES = (
    *(text for texts in ASKED.values() for text in texts),
    *(text for text, _ in (*EXIST, *COUNT)),
    *COMPARED.values(),
    *EQUAL,
    *PHRASES.values(),
    "the and or other another both that is are have has same as",
)


class Question(NamedTuple):
    """A question: its words, its program, and the answer."""

    words: list[str]
    program: list[Step]
    answer: str


class _Noun(NamedTuple):
    """A set of objects, as bits, with its description: words, their steps, and the attributes that these name."""

    objects: int
    words: str
    steps: list[Step]
    attributes: tuple[str, ...]


def all_words() -> list[str]:
    """Return all words of generated questions."""
    names = [word for concept in (*CONCEPTS, *ATTRIBUTES) for word in SYNONYMS.get(concept, (concept,))]
    nouns = [*NOUNS, *(word for shape in ATTRIBUTES["shape"] for word in SYNONYMS[shape])]
    words = " ".join(TEMPLATES).replace("{attribute}", "").replace("{}", "").split()
    return sorted({*words, *names, *nouns, *(f"{noun}s" for noun in nouns)})


class Questioner:
    """Draws questions about a scene.

    All types are equally frequent where they fit, and so are "yes" and "no". A phrase with "the" fits exactly one
    object.

    Args:
        scene: the scene.
        generator: source of all random numbers.
        max_length: largest number of steps of a program, at least 3.
        attributes: the attributes that questions name.
    """

    def __init__(
        self,
        scene: Scene,
        generator: np.random.Generator,
        max_length: int,
        attributes: Sequence[str] = tuple(ATTRIBUTES),
    ) -> None:
        self.max_length = max_length
        self.attributes = attributes
        self._generator = generator
        self._numbers = list[float]()
        names = list(ATTRIBUTES.values())
        self.concepts = [[names[k][value] for k, value in enumerate(row)] for row in scene.values.tolist()]
        self.everything = (1 << len(scene.values)) - 1
        self.of_concept = dict.fromkeys(CONCEPTS, 0)
        for index, row in enumerate(self.concepts):
            for concept in row:
                self.of_concept[concept] |= 1 << index
        places = scene.positions
        order = {"left": (0, 1), "right": (0, -1), "behind": (1, 1), "front": (1, -1)}
        self.related = {
            relation: [
                sum(1 << other for other in range(len(places)) if sign * (places[other, axis] - place[axis]) < 0)
                for place in places
            ]
            for relation, (axis, sign) in order.items()
        }

    def draw(self) -> Question:
        """Return a question."""
        while True:
            type_, is_yes = self._choose(TYPES), self._uniform() < 0.5
            for _ in range(TRIES):
                found = getattr(self, f"_{type_}")()
                if found is None or len(found.program) > self.max_length:
                    continue
                if found.answer not in ("yes", "no") or (found.answer == "yes") == is_yes:
                    return found

    def _uniform(self) -> float:
        if not self._numbers:
            self._numbers = self._generator.random(1000).tolist()  # one call is as slow as a thousand numbers
        return self._numbers.pop()

    def _choose(self, values: Sequence[Value]) -> Value:
        return values[int(self._uniform() * len(values))]

    def _describe(self, candidates: int, plural: bool, *, unique: bool, without: str = "") -> _Noun | None:
        """Return a description of some of the candidates, or of exactly one of them; None: the draw does not fit."""
        allowed = [name for name in self.attributes if name != without]
        count = 1 + (self._uniform() < 0.5) + (self._uniform() < 0.2)
        chosen = {self._choose(allowed) for _ in range(count if allowed else 0)}
        if unique or self._uniform() < 0.6:
            members = [index for index in range(len(self.concepts)) if candidates >> index & 1]
            if not members:
                return None
            row = self.concepts[self._choose(members)]
            values = {name: row[k] for k, name in enumerate(ATTRIBUTES) if name in chosen}
        else:
            values = {name: self._choose(ATTRIBUTES[name]) for name in ATTRIBUTES if name in chosen}
        objects = candidates
        for value in values.values():
            objects &= self.of_concept[value]
        if unique and objects.bit_count() != 1:
            return None
        names = [values[name] for name in ("size", "color", "material") if name in values]
        words = [self._choose(SYNONYMS.get(name, (name,))) for name in names]
        noun = self._choose(SYNONYMS[values["shape"]] if "shape" in values else NOUNS)
        steps = [Step("filter", name) for name in (*names, *([values["shape"]] if "shape" in values else []))]
        return _Noun(objects, " ".join([*words, noun + "s" * plural]), steps[::-1], tuple(values))

    def _unique(self, hops: int = 0, without: str = "") -> _Noun | None:
        """Return a description of one object, by way of `hops` relations to others."""
        return self._chain(hops, False, unique=True, without=without)

    def _chain(self, hops: int, plural: bool, *, unique: bool, without: str = "") -> _Noun | None:
        """Return a description with `hops` relations."""
        if hops == 0:
            found = self._describe(self.everything, plural, unique=unique, without=without)
            return found and found._replace(steps=[Step("scene"), *found.steps])
        inner = self._unique(hops - 1)
        if inner is None:
            return None
        relation = self._choose(RELATIONS)
        candidates = self.related[relation][inner.objects.bit_length() - 1]
        outer = self._describe(candidates, plural, unique=unique, without=without)
        if outer is None:
            return None
        steps = [*inner.steps, Step("relate", relation), *outer.steps]
        return _Noun(outer.objects, f"{outer.words} {PHRASES[relation]} the {inner.words}", steps, outer.attributes)

    def _both(self, plural: bool, *, unique: bool, without: str = "") -> _Noun | None:
        """Return a description by relations to two objects."""
        first, second = self._unique(), self._unique()
        if first is None or second is None:
            return None
        names = self._choose(RELATIONS), self._choose(RELATIONS)
        one, other = (
            self.related[name][noun.objects.bit_length() - 1] for name, noun in zip(names, (first, second), strict=True)
        )
        outer = self._describe(one & other, plural, unique=unique, without=without)
        if outer is None:
            return None
        words = f"{PHRASES[names[0]]} the {first.words} and {PHRASES[names[1]]} the {second.words}"
        steps = [*first.steps, Step("relate", names[0]), *second.steps, Step("relate", names[1])]
        steps += [Step("intersect"), *outer.steps]
        return _Noun(outer.objects, f"{outer.words} that {'are' if plural else 'is'} both {words}", steps, ())

    def _alike(self, plural: bool, *, unique: bool, without: str = "") -> _Noun | None:
        """Return a description of objects that share an attribute with another one."""
        inner, attribute = self._unique(), self._choose(self.attributes)
        if inner is None or attribute in inner.attributes or attribute == without:
            return None
        member = inner.objects.bit_length() - 1
        value = self.concepts[member][list(ATTRIBUTES).index(attribute)]
        candidates = self.of_concept[value] & ~inner.objects
        outer = self._describe(candidates, plural, unique=unique, without=without)
        if outer is None or attribute in outer.attributes:
            return None
        verb = "have" if plural else "has"
        words = f"other {outer.words} that {verb} the same {attribute} as the {inner.words}"
        return _Noun(outer.objects, words, [*inner.steps, Step("same", attribute), *outer.steps], ())

    def _body(self, plural: bool, *, unique: bool, without: str = "") -> _Noun | None:
        """Return a description of any kind."""
        kind = self._uniform()
        if kind < 0.7:
            hops = 0 if kind < 0.35 else 1 if kind < 0.55 else 2
            return self._chain(hops, plural, unique=unique, without=without)
        make = self._both if kind < 0.85 else self._alike
        return make(plural, unique=unique, without=without)

    def _either(self) -> _Noun | None:
        """Return a description of the objects of one kind and of another one."""
        first, second = (self._chain(0, True, unique=False) for _ in range(2))
        if first is None or second is None:
            return None
        steps = [*first.steps, *second.steps, Step("union")]
        return _Noun(first.objects | second.objects, f"{first.words} or {second.words}", steps, ())

    def _exist(self) -> Question | None:
        template, plural = self._choose(EXIST)
        noun = self._body(plural, unique=False)
        if noun is None:
            return None
        words = template.format(noun.words).replace("a other", "another")
        return Question(words.split(), [*noun.steps, Step("exist")], "yes" if noun.objects else "no")

    def _count(self) -> Question | None:
        template, plural = self._choose(COUNT)
        noun = self._either() if self._uniform() < 0.15 else self._body(plural, unique=False)
        if noun is None:
            return None
        words = template.format(noun.words)
        return Question(words.split(), [*noun.steps, Step("count")], str(noun.objects.bit_count()))

    def _query(self) -> Question | None:
        attribute = self._choose(self.attributes)
        noun = self._body(False, unique=True, without=attribute)
        if noun is None:
            return None
        words = self._choose(ASKED[attribute]).format(noun.words)
        value = self.concepts[noun.objects.bit_length() - 1][list(ATTRIBUTES).index(attribute)]
        return Question(words.split(), [*noun.steps, Step("query", attribute)], value)

    def _compare_number(self) -> Question | None:
        hops = int(self._uniform() < 0.25), int(self._uniform() < 0.25)
        first, second = (self._chain(each, True, unique=False) for each in hops)
        if first is None or second is None:
            return None
        name = self._choose(tuple(COMPARED))
        one, other = first.objects.bit_count(), second.objects.bit_count()
        is_true = {"more": one > other, "fewer": one < other, "equal_number": one == other}[name]
        words = COMPARED[name].format(first.words, second.words)
        return Question(words.split(), [*first.steps, *second.steps, Step(name)], "yes" if is_true else "no")

    def _compare_attribute(self) -> Question | None:
        attribute = self._choose(self.attributes)
        hops = int(self._uniform() < 0.25), int(self._uniform() < 0.25)
        first, second = (self._unique(each, without=attribute) for each in hops)
        if first is None or second is None or first.objects == second.objects:
            return None
        column = list(ATTRIBUTES).index(attribute)
        one, other = (self.concepts[noun.objects.bit_length() - 1][column] for noun in (first, second))
        words = self._choose(EQUAL).format(first.words, second.words, attribute=attribute)
        program = [*first.steps, *second.steps, Step("equal", attribute)]
        return Question(words.split(), program, "yes" if one == other else "no")
