"""Finite automata: a table of transitions, random words, and how frequent each label is after each letter."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gyral.core.errors import OptionError
from gyral.core.inputs import read_text

OPTION = "automaton"  # the option that names a file
LARGEST = 1000  # number of states or letters in a file


class Automaton:
    """A finite automaton with S states and L letters, whose states have labels.

    A random word begins in the start state. Each letter is uniform among those that the current state allows.

    Args:
        letters: names of the letters.
        table: (S, L) integers: the next state, or −1 where a state does not allow a letter. Each state allows one.
        labels: (S,) integers: the class of each state.
        classes: names of the classes.
        start: the state of the empty word.
    """

    def __init__(
        self, letters: Sequence[str], table: np.ndarray, labels: np.ndarray, classes: Sequence[str], start: int = 0
    ) -> None:
        self.letters, self.classes = tuple(letters), tuple(classes)
        self.table, self.labels, self.start = table, labels, start
        allowed = table >= 0
        self._counts = allowed.sum(axis=1)
        self._order = np.argsort(~allowed, axis=1, kind="stable")  # the letters of a state, first those it allows
        self._sources, letter = allowed.nonzero()
        self._targets = table[self._sources, letter]

    def words(self, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return random words, and the label after each letter.

        Args:
            draws: (B, T) random numbers, uniform in [0, 1).

        Returns:
            Letters (B, T) and classes (B, T).
        """
        letters, states = np.empty(draws.shape, dtype=np.int64), np.empty(draws.shape, dtype=np.int64)
        state = np.full(len(draws), self.start)
        for step, column in enumerate(draws.T):
            letters[:, step] = self._order[state, (column * self._counts[state]).astype(np.int64)]
            states[:, step] = state = self.table[state, letters[:, step]]
        return letters, self.labels[states]

    def frequencies(self, steps: int) -> np.ndarray:
        """Return the probability of each class after 1 … `steps` letters of a random word, (steps, classes)."""
        weights, found = self._begin(), np.empty((steps, len(self.classes)))
        for step in range(steps):
            weights = self._advance(weights)
            found[step] = np.bincount(self.labels, weights, minlength=len(self.classes))
        return found

    def agreement(self, classes: np.ndarray) -> np.ndarray:
        """Return the probability that a random word has all of the first t labels, for each t.

        Args:
            classes: (T,) the labels.
        """
        weights, found = self._begin(), np.empty(len(classes))
        for step, label in enumerate(classes):
            weights = self._advance(weights) * (self.labels == label)
            found[step] = weights.sum()
        return found

    def _begin(self) -> np.ndarray:
        return (np.arange(len(self.table)) == self.start).astype(float)

    def _advance(self, weights: np.ndarray) -> np.ndarray:
        """Return the weights of the states after another letter, (S,)."""
        shares = (weights / self._counts)[self._sources]
        return np.bincount(self._targets, shares, minlength=len(weights))


def read_automaton(path: str | Path) -> Automaton:
    """Read an automaton from a JSON file, such as parity:

        {"states": ["even", "odd"], "alphabet": ["0", "1"], "start": "even",
         "transitions": {"even": {"0": "even", "1": "odd"}, "odd": {"0": "odd", "1": "even"}}}

    A state need not allow all letters. The optional entry "labels" gives a label to each state, such as
    {"even": "yes", "odd": "no"}; without it the label of a state is its name.

    Raises:
        OptionError: the file cannot be read, or is not an automaton.
    """

    def require(condition: bool, reason: str) -> None:
        if not condition:
            raise OptionError(OPTION, path, reason)

    found = _parse(path)
    needed = {"states", "alphabet", "start", "transitions"}
    entries = f"must be an object with {', '.join(sorted(needed))} and, if wanted, labels"
    require(isinstance(found, dict) and needed <= set(found) <= needed | {"labels"}, entries)
    for entry in ("states", "alphabet"):
        form = f"{entry}: must be a list of at most {LARGEST} different names without spaces"
        require(isinstance(found[entry], list) and 0 < len(found[entry]) <= LARGEST, form)
        require(all(map(_is_name, found[entry])) and len(set(found[entry])) == len(found[entry]), form)
    states = {name: index for index, name in enumerate(found["states"])}
    letters = {name: index for index, name in enumerate(found["alphabet"])}
    require(_is_name(found["start"]) and found["start"] in states, "start: must be one of the states")

    transitions = found["transitions"]
    each = "must be an object with an entry for each state"
    require(isinstance(transitions, dict) and set(transitions) == set(states), f"transitions: {each}")
    table = np.full((len(states), len(letters)), -1)
    for state, row in transitions.items():
        form = f"transitions of {state}: must be an object from at least one letter of the alphabet to states"
        require(isinstance(row, dict) and bool(row) and set(row) <= set(letters), form)
        require(all(_is_name(target) and target in states for target in row.values()), form)
        for letter, target in row.items():
            table[states[state], letters[letter]] = states[target]

    labels = found.get("labels", {state: state for state in states})
    require(isinstance(labels, dict) and set(labels) == set(states), f"labels: {each}")
    require(all(map(_is_name, labels.values())), "labels: must be names without spaces")
    classes = {name: index for index, name in enumerate(dict.fromkeys(labels[state] for state in states))}
    of_states = np.array([classes[labels[state]] for state in states])
    return Automaton(tuple(letters), table, of_states, tuple(classes), states[found["start"]])


def _parse(path: str | Path) -> Any:
    """Return the content of a JSON file in which no object has a key twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("an object has two entries with the same key")
        return found

    text = read_text(OPTION, path)
    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise OptionError(OPTION, path, f"is not a JSON file ({error})") from None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable() and " " not in value
