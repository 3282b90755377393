"""Unlabeled trees over the words of a sentence, from distances or without a model.

A tree is the list of its constituents with two or more words, each as (start, end): the words from `start` to before
`end`. The list starts with the whole sentence, and a constituent precedes the constituents inside it. The list of a
sentence of one word is empty.
"""

from collections.abc import Callable, Sequence

import numpy as np

Span = tuple[int, int]
Tree = list[Span]


def tree_of_distances(distances: Sequence[float] | np.ndarray) -> Tree:
    """Return the tree of distances by a greedy split from the top (Shen et al., ICLR 2019).

    A sequence is split before and after the word i with the largest distance, the leftmost of equal ones:
    [tree of the words before i, [word i, tree of the words after i]], without empty parts. Equal distances
    therefore give right branching. The code of the paper is test_phrase_grammar.py of yikangshen/Ordered-Neurons on
    GitHub.

    Args:
        distances: (n,), the distance between each word and the word before it.
    """
    values = np.asarray(distances)
    tree: Tree = []
    stack = [(0, len(values))]
    while stack:
        start, end = stack.pop()
        if end - start < 2:
            continue
        tree.append((start, end))
        split = start + int(values[start:end].argmax())
        if start < split < end - 1:
            tree.append((split, end))
        stack += [(split + 1, end), (start, split)]
    return sorted(tree, key=_outermost_first)


def right_branching(words: int) -> Tree:
    """Return the tree [w_0, [w_1, [w_2, …]]]."""
    return [(start, words) for start in range(words - 1)]


def left_branching(words: int) -> Tree:
    """Return the tree [[[w_0, w_1], w_2], …]."""
    return [(0, end) for end in range(words, 1, -1)]


def balanced(words: int) -> Tree:
    """Return the tree whose right parts have the largest power of two that is below the number of words."""
    return _split(words, lambda start, end: end - (1 << (end - start - 1).bit_length() - 1))


def random_merges(words: int, random: np.random.Generator) -> Tree:
    """Return the tree of a process that merges two random neighbors until one constituent is left."""
    order = random.permutation(words - 1)  # the boundary after each word is removed at this place in the order
    return _split(words, lambda start, end: start + 1 + int(order[start : end - 1].argmax()))


def random_distances(words: int, random: np.random.Generator) -> Tree:
    """Return the tree of random distances, which prefers right branching: see `tree_of_distances`."""
    return tree_of_distances(random.random(words))


def binarized(tree: Tree, words: int) -> Tree:
    """Return a binary tree with all constituents of a tree; parts branch to the right."""
    found = set(tree)
    for start, end in [(0, words), *tree]:
        if end - start > 1:
            found |= {(child, end) for child, _ in children(tree, (start, end))[:-1]}
    return sorted(found, key=_outermost_first)


def children(tree: Tree, span: Span) -> list[Span]:
    """Return the parts of a constituent in order: its largest constituents, and the single words between them."""
    inside = (each for each in tree if span[0] <= each[0] and each[1] <= span[1] and each != span)
    parts: list[Span] = []
    place = span[0]
    for start, end in sorted(inside, key=_outermost_first):
        if start < place:  # inside the last part
            continue
        parts += [(word, word + 1) for word in range(place, start)]
        parts.append((start, end))
        place = end
    return parts + [(word, word + 1) for word in range(place, span[1])]


def _split(words: int, place: Callable[[int, int], int]) -> Tree:
    """Return the binary tree in which the second part of a constituent (start, end) starts at `place(start, end)`."""
    tree: Tree = []
    stack = [(0, words)]
    while stack:
        start, end = stack.pop()
        if end - start > 1:
            tree.append((start, end))
            middle = place(start, end)
            stack += [(middle, end), (start, middle)]
    return tree


def _outermost_first(span: Span) -> tuple[int, int]:
    return span[0], -span[1]
