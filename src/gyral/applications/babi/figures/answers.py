"""The answer to a question after each sentence of its story."""

import numpy as np
from matplotlib.figure import Figure

from gyral.applications.babi.figures.stories import load_story
from gyral.data.babi.stories import sentence_text
from gyral.figures.common import add_title
from gyral.plotting.sizes import WIDTHS
from gyral.runs.directory import Run

MAX_ANSWERS = 12  # columns: the answers with the highest probabilities


def answers(run: Run) -> Figure:
    """Draw the probabilities of the answers to a question after each sentence of its story.

    The model reads the story up to the sentence, and then the question.
    """
    task, step, story = load_story(run)
    question = story[-1]
    prefixes = [question._replace(story=question.story[:count]) for count in range(len(question.story) + 1)]
    distributions = task.probabilities(prefixes).cpu().numpy()
    classes = task.data.babi.classes
    shown = sorted(np.argsort(-distributions.max(axis=0), kind="stable")[:MAX_ANSWERS])
    figure = Figure(figsize=(WIDTHS["page"], 1.6 + 0.18 * len(prefixes)), layout="constrained")
    asked = f"{sentence_text(question.words)} (right: {question.answer})"
    add_title(figure, run, f"{asked} asked after each sentence; step {step:,}")
    axes = figure.add_subplot()
    picture = axes.imshow(distributions[:, shown], cmap="viridis", vmin=0, vmax=1, aspect="auto")
    sentences = [f"{sentence_text(words)} {place}" for place, words in enumerate(question.story, start=1)]
    axes.set_yticks(range(len(prefixes)), ["(before the first sentence) 0", *sentences])
    supports = {place + 1 for place in question.supports}
    for place, label in enumerate(axes.get_yticklabels()):
        label.set_fontweight("bold" if place in supports else "normal")
    axes.set_xticks(range(len(shown)), [classes[index] for index in shown], rotation=30, ha="right")
    axes.set(xlabel="answer", ylabel="last sentence read; bold: supporting sentence")
    figure.colorbar(picture, label="probability")
    return figure
