"""Answers to test questions about documents, with the attention to the words of the documents."""

import logging
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from gyral.applications.reading.data.questions import ReadingBatch
from gyral.applications.reading.page import Arc, Candidate, Shown, write_page
from gyral.applications.reading.tasks.base import ReadingTask
from gyral.core.checks import check_integer
from gyral.core.inputs import path_of
from gyral.core.measures import percent
from gyral.data.batching import IGNORED

log = logging.getLogger(__name__)
SPLIT = "test"
MOST_LIKELY = 5  # candidates of a question that the page shows


def answer_questions(task: ReadingTask, *, questions: int = 8, html: str | None = None) -> Iterator[str]:
    """Yield questions of the test split with their answers, one line each, and the path of the page if one is written.

    Args:
        task: a trained task.
        questions: number of questions, evenly spaced over the split.
        html: page to write, which shows the documents with their chains of mentions and the attention.

    Raises:
        OptionError: the number of questions is below 1.
    """
    count = len(task.data.splits[SPLIT])
    chosen = np.linspace(0, count - 1, min(check_integer("questions", questions), count)).round().astype(int)
    shown = []
    for row in chosen.tolist():
        shown.append(explain(task, task.batch_of(SPLIT, [row]), f"{SPLIT} question {row + 1:,} of {count:,}"))
        best, right = shown[-1].candidates[0], shown[-1].right
        remark = "right" if best.name == right else f"wrong; right: {right}"
        yield f"{' '.join(shown[-1].question)} {best.name} ({percent(best.probability)}, {remark})\n"
    if html is not None:
        write_page(path_of(html), shown, "Questions and answers")
        yield f"{html}\n"


def explain(task: ReadingTask, batch: ReadingBatch, place: str) -> Shown:
    """Return the content of a page for a batch of one question."""
    words, length = task.words(batch, 0), int(batch.document_lengths[0])
    probabilities = task.probabilities(batch)[0].cpu().numpy()
    best = np.argsort(-probabilities, kind="stable")[:MOST_LIKELY].tolist()
    target = int(batch.targets[0])
    mentions = batch.mentions[0].tolist()
    likely = [index for index in best if task.classes is not None or index + 1 in mentions] or best[:1]
    edges = edges_of(batch)
    return Shown(
        place=place,
        document=words[:length],
        question=words[length:],
        attention=task.attention(batch)[0, :length].cpu().numpy(),
        arcs=edges or links_of(batch.chains[0]),
        is_read=bool(edges),
        candidates=[
            Candidate(task.candidate(batch, 0, index), float(probabilities[index]), index == target) for index in likely
        ],
        right=task.candidate(batch, 0, target) if target != IGNORED else "none of the candidates",
    )


def edges_of(batch: ReadingBatch) -> list[Arc]:
    """Return the edges of the first row of a batch, in the order of their ends, each with the chain of its end."""
    found = []
    for step, kind, slot in batch.edges.earlier[0].nonzero().tolist():
        distance = int(batch.edges.earlier[0, step, kind, slot])
        chain = int(batch.chains[0, step]) or int(batch.chains[0, step - distance])
        found.append(Arc(step - distance, step, chain))
    return found


def links_of(chains: Tensor) -> list[Arc]:
    """Return the links between consecutive mentions of each chain, for chain numbers (T,) of words; 0: none.

    Words next to each other with the same chain are one mention.
    """
    last: dict[int, int] = {}
    found = []
    for step, chain in enumerate(chains.tolist()):
        if chain and last.get(chain, step - 1) != step - 1:
            found.append(Arc(last[chain], step, chain))
        if chain:
            last[chain] = step
    return found
