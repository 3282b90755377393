"""Questions about stories: compact in memory, and batches of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_choice
from gyral.data.babi.stories import Story, Words
from gyral.data.batching import IGNORED
from gyral.data.vocabulary import Vocabulary

LEVELS = ("word", "sentence")
PADDING = 0  # number of the symbol that fills up


class QuestionBatch(NamedTuple):
    """A batch of stories, each followed by its question: B rows, filled up behind with `PADDING` to T steps.

    Attributes:
        inputs: numbers of words; (B, T) at the level of words, (B, T, W) at that of sentences, W the words of the
            longest sentence, shorter ones filled up. At the level of sentences the question is the last step.
        lengths: (B,) steps of each row, the last of which is the one to answer at.
        answers: (B,) classes; `IGNORED` for an answer that training lacks: no loss is taken on it, and no prediction
            equals it, so that it counts as wrong where all rows are counted.
        tasks: (B,) numbers of the tasks.
    """

    inputs: Tensor
    lengths: Tensor
    answers: Tensor
    tasks: Tensor


class EncodedQuestions:
    """Questions as numbers; the sentences of a story are held once for all its questions.

    Args:
        stories: in the order in which their questions are numbered.
        vocabulary: of words in lower case, its number 0 for padding, with `<unk>` for words it lacks.
        classes: the answers.
        level: what a step is: "word", or "sentence".

    Attributes:
        lengths: (n,) steps of each question with its story.

    Raises:
        OptionError: another level.
    """

    def __init__(self, stories: Sequence[Story], vocabulary: Vocabulary, classes: Sequence[str], level: str) -> None:
        self.level = check_choice("level", level, LEVELS)
        told: list[Words] = []
        ranges, asked, answers, tasks = [], [], [], []
        index = {answer: number for number, answer in enumerate(classes)}
        for story in stories:
            start = len(told)
            told += story[-1].story
            for question in story:
                ranges.append((start, start + len(question.story)))
                asked.append(question.words)
                answers.append(index.get(question.answer, IGNORED))
                tasks.append(question.task)
        # one list of sentences, the questions behind all stories: a story's words lie side by side
        sentences = told + asked
        numbers = {words: vocabulary.encode([word.lower() for word in words]) for words in set(sentences)}
        widths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
        self._words = np.concatenate([np.zeros(1, vocabulary.dtype), *map(numbers.__getitem__, sentences)])
        self._bounds = np.cumsum([1, *widths])  # of each sentence in the words; before them is a word of padding
        self._first, self._end = np.array(ranges).reshape(-1, 2).T
        self._asked = len(told) + np.arange(len(asked))
        self._answers = np.array(answers, dtype=np.int64)
        self._tasks = np.array(tasks, dtype=np.int64)
        told_steps = self._end - self._first
        if level == "word":
            told_steps = self._bounds[self._end] - self._bounds[self._first]
        self.lengths = told_steps + (widths[self._asked] if level == "word" else 1)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: np.ndarray) -> QuestionBatch:
        """Return some questions.

        Args:
            rows: (B,) their numbers, B ≥ 1.
        """
        lengths = self.lengths[rows]
        inputs = self._word_steps(rows, lengths) if self.level == "word" else self._sentence_steps(rows, lengths)
        arrays = inputs, lengths, self._answers[rows], self._tasks[rows]
        return QuestionBatch(*(torch.from_numpy(array.astype(np.int64)) for array in arrays))

    def _word_steps(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        story, question = self._bounds[self._first[rows]], self._bounds[self._asked[rows]]
        told = self._bounds[self._end[rows]] - story
        step = np.arange(lengths.max())
        places = np.where(step < told[:, None], story[:, None] + step, (question - told)[:, None] + step)
        return self._words[np.where(step < lengths[:, None], places, 0)]

    def _sentence_steps(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        step = np.arange(lengths.max())
        sentences = np.where(step < lengths[:, None] - 1, self._first[rows][:, None] + step, self._asked[rows][:, None])
        starts = self._bounds[sentences]
        widths = np.where(step < lengths[:, None], self._bounds[sentences + 1] - starts, 0)
        word = np.arange(widths.max())
        return self._words[np.where(word < widths[..., None], starts[..., None] + word, 0)]
