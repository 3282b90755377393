"""Encoded questions about stories, and batches of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_choice
from gyral.core.edges import Edges, encode_edges
from gyral.data.babi.entities import EntityMentions
from gyral.data.babi.stories import Sentence, Story, questions
from gyral.data.batching import IGNORED
from gyral.data.vocabulary import Vocabulary

LEVELS = ("word", "sentence")


class QuestionBatch(NamedTuple):
    """A batch of B stories, each followed by its question, padded at the end with `PADDING_ID` to T steps.

    Attributes:
        inputs: word indices; (B, T) at the word level, (B, T, W) at the sentence level, where W is the length of the
            longest sentence and shorter sentences are padded. At the sentence level the question is the last step.
        lengths: (B,) number of steps of each row; the answer is predicted at the last step.
        answers: (B,) classes; `IGNORED` for an answer that is not in the training split. It has no loss and
            counts as wrong in an accuracy over all rows.
        tasks: (B,) numbers of the tasks.
        edges: `Edges` with batch-first leaves (B, T, 1, D); None: no edges.
    """

    inputs: Tensor
    lengths: Tensor
    answers: Tensor
    tasks: Tensor
    edges: Edges | None = None


class EncodedQuestions:
    """Encoded questions. The sentences of a story are stored once for all its questions.

    Args:
        stories: the stories; their questions are numbered in this order.
        vocabulary: words in lower case, with index 0 for padding and `<unk>` for words outside the vocabulary.
        classes: the answers.
        level: unit of a step: "word" or "sentence".
        mentions: the mentions that edges join; None: no edges.

    Attributes:
        lengths: (n,) number of steps of each question with its story.

    Raises:
        OptionError: another level.
    """

    def __init__(
        self,
        stories: Sequence[Story],
        vocabulary: Vocabulary,
        classes: Sequence[str],
        level: str,
        mentions: EntityMentions | None = None,
    ) -> None:
        self.level = check_choice("level", level, LEVELS)
        facts: list[Sentence] = []
        ranges, asked, answers, tasks = [], [], [], []
        index = {answer: number for number, answer in enumerate(classes)}
        for story in stories:
            start = len(facts)
            facts += story[-1].story
            for question in story:
                ranges.append((start, start + len(question.story)))
                asked.append(question.words)
                answers.append(index.get(question.answer, IGNORED))
                tasks.append(question.task)
        # one list of sentences, with the questions after all stories: the words of a story are contiguous
        sentences = facts + asked
        numbers = {words: vocabulary.encode([word.lower() for word in words]) for words in set(sentences)}
        widths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
        self._words = np.concatenate([np.zeros(1, vocabulary.dtype), *map(numbers.__getitem__, sentences)])
        self._bounds = np.cumsum([1, *widths])  # start of each sentence in `_words`, whose first element is padding
        self._widths = np.append(widths, 0)
        if level == "sentence":  # the words of each sentence with padding, and last of no sentence
            place = np.arange(widths.max(initial=0))
            inside = place < self._widths[:, None]
            self._sentences = self._words[np.where(inside, self._bounds[:, None] + place, 0)]
        self._first, self._end = np.array(ranges).reshape(-1, 2).T
        self._asked = len(facts) + np.arange(len(asked))
        self._answers = np.array(answers, dtype=np.int64)
        self._tasks = np.array(tasks, dtype=np.int64)
        story_steps = self._end - self._first
        if level == "word":
            story_steps = self._bounds[self._end] - self._bounds[self._first]
        self._edges = None
        if mentions is not None:
            found = mentions.edges if level == "word" else mentions.sentence_edges
            self._edges = [found(question) for question in questions(stories)]
        self.lengths = story_steps + (widths[self._asked] if level == "word" else 1)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: np.ndarray) -> QuestionBatch:
        """Return the questions with the given indices as one batch.

        Args:
            rows: (B,) indices, B ≥ 1.
        """
        lengths = self.lengths[rows]
        inputs = self._word_steps(rows, lengths) if self.level == "word" else self._sentence_steps(rows, lengths)
        arrays = inputs, lengths, self._answers[rows], self._tasks[rows]
        edges = None
        if self._edges is not None:
            edges = encode_edges([self._edges[row] for row in rows], steps=inputs.shape[1], types=1)
        steps, sizes, answers, tasks = (torch.from_numpy(array.astype(np.int64, copy=False)) for array in arrays)
        return QuestionBatch(steps, sizes, answers, tasks, edges)

    def _word_steps(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        story, question = self._bounds[self._first[rows]], self._bounds[self._asked[rows]]
        story_words = self._bounds[self._end[rows]] - story
        step = np.arange(lengths.max())
        places = np.where(step < story_words[:, None], story[:, None] + step, (question - story_words)[:, None] + step)
        return self._words[np.where(step < lengths[:, None], places, 0)]

    def _sentence_steps(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        step, last = np.arange(lengths.max()), lengths[:, None] - 1
        sentences = np.where(step < last, self._first[rows][:, None] + step, self._asked[rows][:, None])
        sentences[step > last] = -1
        return self._sentences[sentences, : self._widths[sentences].max()]
