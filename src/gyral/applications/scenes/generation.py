"""Answers to questions about a test scene, with the programs of the model and the sets after each step."""

import logging
from collections.abc import Iterator

import numpy as np
import torch

from gyral.applications.scenes.data.language import ANSWERS, decode_program, nested
from gyral.applications.scenes.models.concept_learner import ConceptLearner
from gyral.applications.scenes.page import Asked, write_page
from gyral.applications.scenes.task import ScenesTask
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.inputs import path_of
from gyral.core.measures import percent
from gyral.data.batching import IGNORED

log = logging.getLogger(__name__)
SPLIT = "test"


def answer_scene(task: ScenesTask, *, scene: int, html: str | None = None) -> Iterator[str]:
    """Yield the questions about a scene of the test split with the programs and answers of the model, one per line.

    Args:
        task: a trained task.
        scene: number of the scene, from 1.
        html: HTML page to write, with the picture and the attention to its objects after each step of the programs.

    Raises:
        OptionError: the scene does not exist, or the model has no programs for a page.
    """
    scenes = task.data.splits[SPLIT]
    index = check_integer("scene", scene, maximum=len(scenes)) - 1
    batch = scenes.batch(np.array([index]), [scenes.questions_of(index)])
    batch = task.transfer_batch_to_device(batch, task.device, 0)
    model = task.model
    if html is not None and not isinstance(model, ConceptLearner):
        raise OptionError("html", html, f"{type(model).__name__} has no programs to show")
    asked = list[Asked]()
    with torch.no_grad():
        probabilities = task.eval()(batch)[0].softmax(dim=-1)
        programs = model.programs(batch)
        sets = [] if programs is None else model.run(batch, programs).sets
    for number in range(int((batch.targets[0] != IGNORED).sum())):
        best = int(probabilities[number].argmax())
        steps = []
        if programs is not None:
            steps = decode_program(programs.operators[number].tolist(), programs.arguments[number].tolist())
        question = Asked(
            words=task.data.vocabulary.decode(batch.questions[0, number].tolist()),
            program=steps,
            attention=[each[number].tolist() for each in sets[: len(steps) - 1]],
            answer=ANSWERS[best],
            probability=float(probabilities[number, best]),
            right=ANSWERS[int(batch.targets[0, number])],
        )
        asked.append(question)
        remark = "right" if question.answer == question.right else f"wrong; right: {question.right}"
        shown = f" · {nested(steps)}" if steps else ""
        yield f"{' '.join(question.words)}? {question.answer} ({percent(question.probability)}, {remark}){shown}\n"
    if html is not None:
        places = scenes.positions[index, : scenes.objects[index]]
        write_page(path_of(html), scenes.images[index], places, asked, f"Test scene {scene} of {len(scenes)}")
        yield f"{html}\n"
