"""Text from a small grammar, which needs neither a download nor a license."""

import random
from collections.abc import Callable
from typing import Any

SIZE = 300_000  # characters

NOUNS = {
    "singular": ["dog", "cat", "child", "farmer", "teacher", "key", "boat", "letter", "river", "house"],
    "plural": ["dogs", "cats", "children", "farmers", "teachers", "keys", "boats", "letters", "rivers", "houses"],
}
VERBS = {
    "singular": ["sees", "likes", "follows", "hears", "finds", "holds"],
    "plural": ["see", "like", "follow", "hear", "find", "hold"],
}
RESTING = {
    "singular": ["sleeps", "waits", "sings", "falls", "was old", "was small", "was near home"],
    "plural": ["sleep", "wait", "sing", "fall", "were old", "were small", "were near home"],
}
NAMES = {"herself": ["anna", "maria", "julia"], "himself": ["paul", "peter", "oscar"]}
ADJECTIVES = ["old", "small", "red", "quiet", "happy", "strange"]
PLACES = ["near", "behind", "beside", "under"]
SPEECH = ["says", "thinks", "writes", "believes"]
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


def synthetic_text(size: int = SIZE, seed: int = 1) -> str:
    """Return sentences of a small grammar, for first runs on a new machine and for tests of learning.

    Each sentence is a line; its words and punctuation marks are separated by spaces, as in the Penn Treebank. The
    result depends only on the arguments. Apart from the spelling of a hundred words, a model needs memory to predict

    - the number of a verb, from its subject: "the dog that the farmers near the river follow sleeps .", with up to
      three clauses that have their own subjects in between;
    - "herself" or "himself", from the name of the subject, across insertions of any length;
    - the next closing bracket, "( [ { } ] )", up to five levels deep, and the closing quotation mark.

    Args:
        size: minimum number of characters; the last sentence is completed.
        seed: seed of the choices.
    """
    grammar = _Grammar(random.Random(seed).random)  # the only generator whose sequence Python guarantees
    sentences, length = [], 0
    while length < size:
        sentences.append(f"{grammar.clause(0)} .\n")
        length += len(sentences[-1])
    return "".join(sentences)


class _Grammar:
    """Random derivations of the grammar.

    Args:
        uniform: draws numbers in [0, 1).
    """

    def __init__(self, uniform: Callable[[], float]) -> None:
        self.uniform = uniform

    def choose(self, items: Any) -> Any:
        return items[int(self.uniform() * len(items))]

    def noun_phrase(self, number: str, depth: int) -> str:
        noun = self.choose(NOUNS[number])
        phrase = f"the {self.choose(ADJECTIVES)} {noun}" if self.uniform() < 0.3 else f"the {noun}"
        chance = self.uniform()
        other = self.choose(("singular", "plural"))
        if depth < 3 and chance < 0.15:
            return f"{phrase} {self.choose(PLACES)} {self.noun_phrase(other, depth + 1)}"
        if depth < 3 and chance < 0.3:
            return f"{phrase} that {self.noun_phrase(other, depth + 1)} {self.choose(VERBS[other])}"
        if depth < 3 and chance < 0.4:
            return f"{phrase} that {self.choose(VERBS[number])} {self.noun_phrase(other, depth + 1)}"
        return phrase

    def aside(self, depth: int) -> str:
        opening, closing = self.choose(BRACKETS)
        inner = self.clause(depth + 1) if self.uniform() < 0.6 else self.choose(ADJECTIVES)
        nested = f" {self.aside(depth + 1)}" if depth < 4 and self.uniform() < 0.4 else ""
        return f"{opening} {inner}{nested} {closing}"

    def clause(self, depth: int) -> str:
        inserted = f" {self.aside(depth)}" if depth < 4 and self.uniform() < 0.15 else ""
        chance = self.uniform()
        if chance < 0.2:
            pronoun = self.choose(tuple(NAMES))
            return f"{self.choose(NAMES[pronoun])}{inserted} {self.choose(VERBS['singular'])} {pronoun}"
        if chance < 0.35 and depth < 2:
            speaker = self.choose(NAMES[self.choose(tuple(NAMES))])
            return f'{speaker}{inserted} {self.choose(SPEECH)} " {self.clause(depth + 1)} "'
        number, other = self.choose(("singular", "plural")), self.choose(("singular", "plural"))
        subject = self.noun_phrase(number, depth) + inserted
        if chance < 0.7:
            return f"{subject} {self.choose(RESTING[number])}"
        return f"{subject} {self.choose(VERBS[number])} {self.noun_phrase(other, depth)}"
