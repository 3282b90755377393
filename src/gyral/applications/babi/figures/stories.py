"""The story of the validation split that the figures of question answering show."""

from gyral.applications.babi.task import BabiTask
from gyral.core.errors import OptionError
from gyral.data.babi.stories import Question
from gyral.runs.directory import Run
from gyral.training import build

MAX_SENTENCES = 24  # of a story that fits into a figure


def load_story(run: Run) -> tuple[BabiTask, int, list[Question]]:
    """Return a run's trained task, its number of optimizer steps, and the first short story of its validation split.

    Raises:
        OptionError: The run has another task, or all of its stories have more than `MAX_SENTENCES` sentences.
    """
    task, step = build.load_trained(run, "best")
    if not isinstance(task, BabiTask):
        raise OptionError("run", run.directory, f"must be a run of task=babi; its task is {type(task).__name__}")
    for story in task.data.babi.splits["val"]:
        if len(story[-1].story) <= MAX_SENTENCES:
            return task, step, story
    raise OptionError(
        "run", run.directory, f"every story has more than {MAX_SENTENCES} sentences, which do not fit into a figure"
    )
