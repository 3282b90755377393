"""Answers after each sentence."""

import numpy as np
import pytest

from gyral.applications.babi.figures.answers import answers
from gyral.applications.babi.figures.stories import load_story
from gyral.runs.directory import Run


def test_a_row_is_the_answer_after_a_sentence(answering: Run) -> None:
    figure = answers(answering)
    task, _, story = load_story(answering)
    axes, question = figure.axes[0], story[-1]
    shown = np.asarray(axes.images[0].get_array())
    assert shown.shape == (len(question.story) + 1, 6)
    assert shown.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert shown[-1] == pytest.approx(task.probabilities([question])[0].numpy(), abs=1e-6)
    assert shown[0] == pytest.approx(task.probabilities([question._replace(story=())])[0].numpy(), abs=1e-6)
    assert [label.get_text() for label in axes.get_xticklabels()] == list(task.data.babi.classes)
    bold = [place for place, label in enumerate(axes.get_yticklabels()) if label.get_fontweight() == "bold"]
    assert bold == sorted(fact + 1 for fact in question.supports)
