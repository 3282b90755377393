"""The story of the validation split that the figures of question answering show."""

from typing import Any

from gyral.applications.babi.task import BabiTask
from gyral.core.errors import OptionError
from gyral.data.babi.stories import Question
from gyral.runs.directory import Run
from gyral.training import build

MAX_SENTENCES = 24  # largest number of sentences that fit into a figure


def load_story(run: Run) -> tuple[BabiTask, int, list[Question]]:
    """Return a run's trained task, its number of optimizer steps, and the first short story of its validation split.

    Raises:
        OptionError: all its stories have more than `MAX_SENTENCES` sentences.
    """
    task: Any
    task, step = build.load_trained(run, "best")
    for story in task.data.babi.splits["val"]:
        if len(story[-1].story) <= MAX_SENTENCES:
            return task, step, story
    raise OptionError(
        "run", run.directory, f"every story has more than {MAX_SENTENCES} sentences, which do not fit into a figure"
    )
