"""Frequencies of answers."""

import math
from collections import Counter

from gyral.data.babi.corpus import Babi
from gyral.data.babi.stories import questions


def answer_counts(babi: Babi) -> dict[int, Counter[str]]:
    """Return the counts of the answers in the training split, for each task."""
    counts: dict[int, Counter[str]] = {}
    for question in questions(babi.splits["train"]):
        counts.setdefault(question.task, Counter())[question.answer] += 1
    return counts


def frequency_loss(babi: Babi, split: str = "test") -> float:
    """Return the cross-entropy, in nats, of the answers of a split under the frequencies in the training split.

    Each task has separate frequencies. Counts start at 1 (add-one smoothing), so that no class has probability 0.
    Answers that are not a class are ignored; NaN if none is a class.
    """
    counts, classes = answer_counts(babi), set(babi.classes)
    losses = [
        -math.log((counts[question.task][question.answer] + 1) / (counts[question.task].total() + len(classes)))
        for question in questions(babi.splits[split])
        if question.answer in classes
    ]
    return sum(losses) / len(losses) if losses else math.nan
