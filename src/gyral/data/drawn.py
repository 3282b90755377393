"""Parts of batches that are drawn when they are read: layouts, categories, and samples without replacement."""

import numpy as np
import torch

from gyral.data.batching import IGNORED, Batch


def answer_batch(
    questions: np.ndarray,
    question_lengths: np.ndarray,
    answers: np.ndarray,
    answer_lengths: np.ndarray,
    end_of_input: float,
    categories: np.ndarray | None = None,
) -> Batch:
    """Return a batch of questions with their answers, during which the input is constant.

    The first step of the answer follows the last step of the question. A model may write the question, but
    not the answer, to an external memory.

    Args:
        questions: (B, Q) tokens, or (B, Q, X) vectors; values beyond the length of a row are ignored.
        question_lengths: (B,), each ≥ 1.
        answers: (B, A) classes, or (B, A, Y) real values; values beyond the length of a row are ignored.
        answer_lengths: (B,), each ≥ 1.
        end_of_input: the input token during the answer, or the value of all X elements.
        categories: see `Batch`.
    """
    lengths = question_lengths + answer_lengths
    step = np.arange(lengths.max())
    is_read = step < question_lengths[:, None]
    is_answered = ~is_read & (step < lengths[:, None])
    inputs = np.full((*is_read.shape, *questions.shape[2:]), end_of_input, dtype=questions.dtype)
    absent = np.nan if np.issubdtype(answers.dtype, np.floating) else IGNORED
    targets = np.full((*is_read.shape, *answers.shape[2:]), absent, dtype=answers.dtype)
    # In both pairs of masks, the number of selected positions of a row is its length, in order.
    inputs[is_read] = questions[np.arange(questions.shape[1]) < question_lengths[:, None]]
    targets[is_answered] = answers[np.arange(answers.shape[1]) < answer_lengths[:, None]]
    return Batch(
        torch.from_numpy(inputs),
        torch.from_numpy(targets),
        lengths=torch.from_numpy(lengths),
        write=torch.from_numpy(is_read),
        categories=None if categories is None else torch.from_numpy(categories),
    )


def categories_of_test(rows: int, tests: int, test: int) -> torch.Tensor:
    """Return the categories (B, tests) of a batch whose rows all belong to one test; see `Batch`."""
    return (torch.arange(tests) == test).expand(rows, -1)


def draw_distinct(generator: np.random.Generator, low: int, high: int, shape: tuple[int, int]) -> np.ndarray:
    """Return rows of distinct integers in [low, high); all sequences of distinct integers are equally likely.

    What repeats an earlier integer of its row is drawn again. This treats all integers alike, so the result is uniform.

    Args:
        generator: source of the random numbers.
        low, high: bounds of the integers.
        shape: rows and columns, at most high − low columns.
    """
    drawn = generator.integers(low, high, shape)
    repeats = np.zeros(shape, dtype=bool)
    while True:
        order = drawn.argsort(axis=1, kind="stable")
        ascending = np.take_along_axis(drawn, order, axis=1)
        np.put_along_axis(repeats, order[:, 1:], ascending[:, 1:] == ascending[:, :-1], axis=1)
        np.put_along_axis(repeats, order[:, :1], False, axis=1)
        if not repeats.any():
            return drawn
        drawn[repeats] = generator.integers(low, high, int(repeats.sum()))
