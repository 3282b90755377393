"""The attention of questions to sentences."""

from pathlib import Path

import numpy as np
import pytest

from gyral.applications.babi.figures.attention import attention
from gyral.applications.babi.figures.stories import load_story
from gyral.core.errors import OptionError
from gyral.data.babi.stories import sentence_text
from gyral.report import draw_figure as draw
from gyral.runs.directory import Run


def test_a_column_is_how_a_question_attends_to_the_sentences_before_it(answering: Run) -> None:
    figure = attention(answering)
    task, _, story = load_story(answering)
    axes = figure.axes[0]
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert shown.shape == (len(story[-1].story), len(story))
    weights = task.attention(story).numpy()
    for column, question in enumerate(story):
        shares = shown[: len(question.story), column]
        assert np.isnan(shown[len(question.story) :, column]).all()
        if task.data.level == "sentence":
            assert shares == pytest.approx(weights[: len(shares), column])
            assert shares.sum() == pytest.approx(1, abs=1e-5)
        else:
            first = len(question.story[0])
            assert shares[0] == pytest.approx(weights[:first, column].sum())
            assert 0 < shares.sum() < 1, "some of it goes to the words of the question"
    best = task.probabilities(story).argmax(dim=1).tolist()
    for label, question, index in zip(axes.get_xticklabels(), story, best, strict=True):
        lines = label.get_text().splitlines()
        assert lines[0] == sentence_text(question.words)
        assert lines[1].removesuffix(" ✗") == task.data.babi.classes[index]
        assert lines[2:] == ([] if task.data.babi.classes[index] == question.answer else [f"right: {question.answer}"])
    marked = [line.get_xydata().tolist() for line in axes.lines[::2]]
    assert marked == [[[column, fact] for fact in question.supports] for column, question in enumerate(story)]


def test_attention_is_drawn_of_a_task_that_has_it(babi_run: Path) -> None:
    expected = rf"^run={babi_run}: its task must have attention; train with task.attention=true$"
    with pytest.raises(OptionError, match=expected):
        draw("attention", babi_run)
