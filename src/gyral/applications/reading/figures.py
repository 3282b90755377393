"""The answer to a question about a document after each sentence of the document, for one run or several."""

from collections.abc import Sequence
from itertools import pairwise
from textwrap import fill, shorten
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from gyral.applications.reading.data.questions import ReadingBatch
from gyral.applications.reading.tasks.base import ReadingTask
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.figures.common import describe_run
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import SMALL, without_formulas
from gyral.runs.directory import Run
from gyral.training import build

MAX_ANSWERS = 12  # columns: the answers with the highest probabilities in any run
MAX_SENTENCES = 24  # largest number of sentences that fit into a figure
SEARCHED = 200  # number of validation questions; the figure shows the longest of their documents that fits
ENDS = (".", "!", "?")  # words that end a sentence
SENTENCE_WIDTH = 46  # characters of a sentence beside the figure


class Read(NamedTuple):
    """The answers of one run after each sentence of a document, (sentences, candidates)."""

    run: Run
    task: ReadingTask
    batch: ReadingBatch
    step: int
    probabilities: np.ndarray


def answers(*runs: Run) -> Figure:
    """Draw the probabilities of the answers to a validation question after each sentence, a panel for each run.

    As in Figure 4 of Dhingra et al. (2017, arXiv:1703.02620), the model reads the whole document and the question,
    and the answer is computed from the state at the end of each sentence; see
    `gyral.applications.reading.models.reader.Reader.answers_after`.

    Raises:
        OptionError: A run has another task or another question; or no document is short enough.
    """
    for run in runs:
        _check(run)
    first = _load(runs[0], None)
    reads = [first, *(_load(run, first) for run in runs[1:])]
    task, batch = first.task, first.batch
    words, length = task.words(batch, 0), int(batch.document_lengths[0])
    ends = sentence_ends(words[:length])
    highest = np.max([read.probabilities.max(axis=0) for read in reads], axis=0)
    shown = sorted(np.argsort(-highest, kind="stable")[:MAX_ANSWERS])
    width = WIDTHS["page"] if len(reads) < 3 else WIDTHS["page"] * len(reads) / 2
    figure = Figure(figsize=(width, 1.7 + 0.18 * len(ends)), layout="constrained")
    target = int(batch.targets[0])
    asked = f"{' '.join(words[length:])} (right: {task.candidate(batch, 0, target)})"
    figure.suptitle(without_formulas(fill(f"{asked} after each sentence", int(15 * width))))
    panels = figure.subplots(1, len(reads), sharey=True, squeeze=False)[0]
    for axes, read in zip(panels, reads, strict=True):
        title = f"{describe_run(read.run)}, step {read.step:,}"
        axes.set_title(without_formulas(fill(title, int(60 / len(reads)))), fontsize=SMALL)
        picture = axes.imshow(read.probabilities[:, shown], cmap="viridis", vmin=0, vmax=1, aspect="auto")
        names = [without_formulas(shorten(task.candidate(batch, 0, index), 20)) for index in shown]
        axes.set_xticks(range(len(shown)), names, rotation=45, ha="right", rotation_mode="anchor")
        for label, index in zip(axes.get_xticklabels(), shown, strict=True):
            label.set_fontweight("bold" if index == target else "normal")
        axes.set_xlabel("answer; bold: right")
    sentences = [" ".join(words[start:end]) for start, end in pairwise([0, *(end + 1 for end in ends)])]
    labels = [f"{shorten(text, SENTENCE_WIDTH, placeholder=' …')} {place}" for place, text in enumerate(sentences, 1)]
    panels[0].set_yticks(range(len(labels)), [without_formulas(label) for label in labels])
    panels[0].set_ylabel("last sentence read")
    figure.colorbar(picture, ax=list(panels), label="probability")
    return figure


def sentence_ends(words: Sequence[str]) -> list[int]:
    """Return the steps at which the sentences of a document end; the last one is its last step."""
    ends = [step for step, word in enumerate(words) if word in ENDS]
    return ends if ends and ends[-1] == len(words) - 1 else [*ends, len(words) - 1]


def _check(run: Run) -> None:
    """Raise `OptionError` if the task of a run has no reader."""
    task = build.task_class(run)
    if not issubclass(task, ReadingTask):
        reason = f"must be a run of a task with a reader, as the other run; its task is {task.__name__}"
        raise OptionError("run", run.directory, reason)


def _load(run: Run, like: Read | None) -> Read:
    """Return the answers of a run to a question, which is the question of `like` if given."""
    task: Any
    task, step = build.load_trained(run, "best")
    row = _choose(run, task) if like is None else _find(run, task, like)
    batch = task.batch_of("val", [row])
    ends = sentence_ends(task.words(batch, 0)[: int(batch.document_lengths[0])])
    return Read(run, task, batch, step, task.probabilities_after(batch, ends)[:, 0].cpu().numpy())


def _choose(run: Run, task: ReadingTask) -> int:
    """Return the row of the longest document that fits into the figure among the first validation questions."""
    most, found = 1, None
    for row in range(min(len(task.data.splits["val"]), SEARCHED)):
        batch = task.batch_of("val", [row])
        sentences = len(sentence_ends(task.words(batch, 0)[: int(batch.document_lengths[0])]))
        if most < sentences <= MAX_SENTENCES and batch.targets[0] != IGNORED:
            most, found = sentences, row
    if found is None:
        reason = f"none of its first validation questions has a document of 2 to {MAX_SENTENCES} sentences"
        raise OptionError("run", run.directory, reason)
    return found


def _find(run: Run, task: ReadingTask, like: Read) -> int:
    """Return the index of the validation question of another run."""
    wanted = like.task.words(like.batch, 0)
    for row in range(min(len(task.data.splits["val"]), SEARCHED)):
        if task.words(task.batch_of("val", [row]), 0) == wanted:
            return row
    raise OptionError("run", run.directory, f"must have the same validation questions as {like.run.directory}")
