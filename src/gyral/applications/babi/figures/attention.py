"""Attention of the questions of a bAbI story to its sentences."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.applications.babi.figures.stories import load_story
from gyral.applications.babi.task import BabiTask
from gyral.core.errors import OptionError
from gyral.data.babi.stories import Question, sentence_text
from gyral.figures.common import add_title
from gyral.models.attention import Attention
from gyral.plotting.sizes import WIDTHS
from gyral.runs.directory import Run


def attention(run: Run) -> Figure:
    """Draw the attention weights of each question of a validation story over the sentences of the story."""
    task, step, story = load_story(run)
    if not isinstance(task.model.readout, Attention):
        raise OptionError("run", run.directory, "its task must have attention; train with task.attention=true")
    sentences = story[-1].story
    figure = Figure(figsize=(WIDTHS["page"], 1.9 + 0.18 * len(sentences)), layout="constrained")
    add_title(figure, run, f"attention at step {step:,}; ○ supporting sentence, ✗ wrong answer")
    axes = figure.add_subplot()
    weights = np.ma.masked_invalid(sentence_weights(task, story))
    picture = axes.imshow(weights, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    _label_questions(axes, task, story)
    axes.set_yticks(
        range(len(sentences)), [f"{sentence_text(words)} {place}" for place, words in enumerate(sentences, 1)]
    )
    figure.colorbar(picture, label="weight")
    return figure


def _label_questions(axes: Axes, task: BabiTask, story: list[Question]) -> None:
    """Label each column with its question and the predicted answer, and mark the supporting sentences."""
    predicted = task.probabilities(story).argmax(dim=-1).tolist()
    labels = []
    for column, (question, best) in enumerate(zip(story, predicted, strict=True)):
        answer = task.data.babi.classes[best]
        correction = "" if answer == question.answer else f" ✗\nright: {question.answer}"
        labels.append(f"{sentence_text(question.words)}\n{answer}{correction}")
        for color, width in (("white", 3), ("#d55e00", 1.5)):  # the white edge is visible on any color
            marks = [column] * len(question.supports), question.supports
            axes.plot(*marks, "o", mfc="none", mec=color, ms=8, mew=width)
    axes.set_xticks(range(len(story)), labels, rotation=30, ha="right")


def sentence_weights(task: BabiTask, story: list[Question]) -> np.ndarray:
    """Return the attention weights (sentences, questions), NaN where the question precedes the sentence.

    At the level of words, the weight of a sentence is the sum over its words. The remainder to 1 is the weight of the
    question's own words.
    """
    weights = task.attention(story).cpu().numpy()
    summed = np.full((len(story[-1].story), len(story)), np.nan)
    for column, question in enumerate(story):
        step = 0
        for place, words in enumerate(question.story):
            width = len(words) if task.data.level == "word" else 1
            summed[place, column] = weights[step : step + width, column].sum()
            step += width
    return summed
