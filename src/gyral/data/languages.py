"""Formal languages: which words are in a language, and random ones inside and outside.

A word is a text with a character for each symbol.
"""

import random
from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple


class Language:
    """A set of words over an alphabet.

    Attributes:
        letters: the alphabet.
        shortest, step: there are words of `shortest`, `shortest` + `step`, … letters both in the language and outside.
    """

    letters = "01"
    shortest = 1
    step = 1

    def has_length(self, length: int) -> bool:
        """Return whether there are words of this length, both in the language and outside."""
        return length >= self.shortest and (length - self.shortest) % self.step == 0

    def contains(self, word: str) -> bool:
        """Return whether a word over the alphabet is in the language."""
        raise NotImplementedError

    def draw(self, source: random.Random, length: int) -> str:
        """Return a random word in the language, of a length that `has_length` allows."""
        raise NotImplementedError


def draw_outside(language: Language, source: random.Random, length: int) -> str:
    """Return a random word outside a language.

    Half of all proposals are uniform words of the length, the others are words in the language after edits. The number
    of edits is geometric, 1, 2, … with the probabilities 1/2, 1/4, …; an edit inserts, replaces or deletes a uniform
    letter. Proposals in the language are rejected.
    """
    while True:
        is_edited = source.random() < 0.5
        word = _edited(language, source, length) if is_edited else "".join(source.choices(language.letters, k=length))
        if len(word) == length and not language.contains(word):
            return word


def _edited(language: Language, source: random.Random, length: int) -> str:
    """Return a word in the language after edits, of the given length unless a letter of an empty word was edited."""
    changes: list[int] = []
    while not changes or not language.has_length(length - sum(changes)):
        changes = [source.choice((1, 0, -1))]
        while source.random() < 0.5:
            changes.append(source.choice((1, 0, -1)))
    word = language.draw(source, length - sum(changes))
    for change in changes:
        if change == 1:
            place = source.randrange(len(word) + 1)
            word = word[:place] + source.choice(language.letters) + word[place:]
        elif word:
            place = source.randrange(len(word))
            letter = source.choice(language.letters.replace(word[place], "")) if change == 0 else ""
            word = word[:place] + letter + word[place + 1 :]
    return word


class _Walks(NamedTuple):
    """The random walks of some number of letters.

    Attributes:
        chances: the chance of each state to end in an accepting one, up to a factor.
        steps: the letters of each state, their accumulated chances, and the next states.
    """

    chances: list[float]
    steps: list[tuple[list[str], list[float], list[int]]]


class AutomatonLanguage(Language):
    """The words that an automaton accepts, which begins in state 0.

    A random word of n letters is a random walk, given that the automaton accepts it after n letters. Without this
    condition, the walk would choose among the letters of a state and, if it accepts, the end with equal probabilities.

    Args:
        letters: the alphabet.
        table: the next state by letter, of each state. A letter that is absent leads out of the language.
        accepting: the accepting states.
        shortest, step: see `Language`.
    """

    def __init__(
        self, letters: str, table: Sequence[Mapping[str, int]], accepting: set[int], shortest: int = 1, step: int = 1
    ) -> None:
        self.letters, self.table, self.accepting = letters, table, accepting
        self.shortest, self.step = shortest, step
        # By the number of letters that follow. Threads may draw at once, so that a longer list replaces it as a whole.
        self._walks = [_Walks([float(state in accepting) for state in range(len(table))], [])]

    def contains(self, word: str) -> bool:
        state: int | None = 0
        for letter in word:
            state = None if state is None else self.table[state].get(letter)
        return state in self.accepting

    def draw(self, source: random.Random, length: int) -> str:
        walks = self._walks
        if len(walks) <= length:
            walks = [*walks]
            while len(walks) <= length:
                walks.append(self._longer(walks[-1].chances))
            self._walks = walks
        found, state = "", 0
        for following in range(length, 0, -1):
            letters, chances, states = walks[following].steps[state]
            index = min(bisect(chances, source.random() * chances[-1]), len(letters) - 1)
            found, state = found + letters[index], states[index]
        return found

    def _longer(self, last: Sequence[float]) -> _Walks:
        """Return the walks with one more letter before those with the chances `last`."""
        steps = []
        for state, row in enumerate(self.table):
            choices = len(row) + (state in self.accepting)
            letters = [letter for letter, target in row.items() if last[target] > 0]
            chances = list(accumulate(last[row[letter]] / choices for letter in letters))
            steps.append((letters, chances, [row[letter] for letter in letters]))
        sums = [chances[-1] if chances else 0.0 for _, chances, _ in steps]
        total = sum(sums) or 1.0  # keeps the chances from becoming too small for a float
        return _Walks([each / total for each in sums], steps)
