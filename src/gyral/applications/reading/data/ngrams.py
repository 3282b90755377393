"""n-gram models as a reference for questions whose answer is the next word, as in LAMBADA."""

from collections.abc import Collection, Iterator

import numpy as np

from gyral.applications.reading.data.encoded import StoredQuestions
from gyral.data.batching import IGNORED, SortedBatches
from gyral.data.text.ngrams import witten_bell

BATCH = 256  # questions that are decoded at a time


def ngram_accuracy(
    train: StoredQuestions, test: StoredQuestions, vocabulary_size: int, order: int, ignored: Collection[int] = ()
) -> list[float]:
    """Return the accuracy of n-gram models of orders 1 to `order` that choose the most probable candidate.

    The models (`gyral.data.text.ngrams`) are trained on the documents with their questions and answers.

    Args:
        train, test: the questions. Test questions whose answer is not a candidate count as wrong.
        vocabulary_size: number of words.
        order: length of the longest n-grams, including the answer.
        ignored: indices of words that are not part of the text, such as the first word of a question.

    Raises:
        OptionError: `order` is below 1, or above the number of words in training.
    """
    left_out = np.array(sorted(ignored), dtype=np.int64)
    text = np.concatenate(
        [
            np.append(words, candidates[answer])
            for words, candidates, answer in _rows(train, left_out)
            if answer != IGNORED
        ]
    )
    windows, counts, answers = [], [], []
    for words, candidates, answer in _rows(test, left_out):
        context = np.concatenate([np.zeros(order, dtype=np.int64), words])[len(words) + 1 :]  # order − 1 words
        windows.append(np.column_stack([np.tile(context, (len(candidates), 1)), candidates]))
        counts.append(len(candidates))
        answers.append(answer)
    # Each candidate is the last word of a separate window, so that its context is complete for every order.
    scored = np.concatenate(windows)
    probabilities = witten_bell(text, scored.ravel(), vocabulary_size, order)[:, order - 1 :: order]
    ends = np.cumsum(counts)
    correct = np.zeros(order)
    for start, end, answer in zip(ends - counts, ends, answers, strict=True):
        if answer != IGNORED:
            correct += probabilities[:, start:end].argmax(axis=1) == answer
    return (correct / len(test)).tolist()


def _rows(questions: StoredQuestions, ignored: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield the words of each document with its question, the words of its candidates, and its answer."""
    for batch in SortedBatches(questions, BATCH):
        fields = batch.inputs.numpy(), batch.mentions.numpy(), batch.lengths.tolist(), batch.targets.tolist()
        for inputs, mentions, length, answer in zip(*fields, strict=True):
            words = inputs[:length]
            found, first = np.unique(mentions[:length], return_index=True)
            yield words[~np.isin(words, ignored)], words[first[found > 0]], answer
