"""Collections of scenes with their questions, in compact arrays, and batches of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.applications.scenes.data.language import (
    ANSWER_IDS,
    ATTRIBUTES,
    OPERATORS,
    TYPES,
    QuestionVocabulary,
    encode_program,
)
from gyral.applications.scenes.data.questions import Question, Questioner
from gyral.applications.scenes.data.rendering import render
from gyral.applications.scenes.data.world import draw_scene
from gyral.data.batching import IGNORED, pad_rows

CROP = 24  # side of the square around an object that a model sees, in pixels
TYPE_OF = np.array([TYPES.index(each.type) if each.type else -1 for each in OPERATORS])


class SceneBatch(NamedTuple):
    """A batch of S scenes of up to N objects, with K questions each of up to L words and programs of up to P steps.

    Attributes:
        crops: (S, N, CROP, CROP, 3) uint8, the part of the picture around each object; 0 for absent objects.
        positions: (S, N, 2), x and y of each object, −1 to 1 from border to border.
        objects: (S,) number of objects.
        questions: (S, K, L) words, padded with 0.
        operators: (S, K, P) operators of the programs, padded with 0.
        arguments: (S, K, P) arguments of the operators; 0: none.
        types: (S, K) types of the questions.
        targets: (S, K) answers; `IGNORED` for absent questions.
        categories: (S, C) bool, the categories of the scenes; the first one counts in the metrics of the split.
    """

    crops: Tensor
    positions: Tensor
    objects: Tensor
    questions: Tensor
    operators: Tensor
    arguments: Tensor
    types: Tensor
    targets: Tensor
    categories: Tensor


class SceneCollection:
    """Scenes with pictures and questions.

    Args:
        images: (n, H, W, 3) uint8.
        positions: for each scene the centers of its objects (N, 2), in pixels.
        questions: for each scene its questions, at least one.
        vocabulary: the words of questions.

    Attributes:
        objects: (n,) number of objects of each scene.
        programs: (q, 2, P) operators and arguments of all questions, sorted by scene.
        program_lengths: (q,) number of steps of each program.
        first: (n + 1,) index of the first question of each scene.
    """

    def __init__(
        self,
        images: np.ndarray,
        positions: Sequence[np.ndarray],
        questions: Sequence[Sequence[Question]],
        vocabulary: QuestionVocabulary,
    ) -> None:
        self.images = images
        self.objects = np.array([len(places) for places in positions])
        self.positions = np.zeros((len(images), self.objects.max(), 2), dtype=np.float32)
        for padded, places in zip(self.positions, positions, strict=True):
            padded[: len(places)] = places
        flat = [question for of_scene in questions for question in of_scene]
        self.first = np.cumsum([0, *map(len, questions)])
        self.words = pad_rows([vocabulary.encode(question.words) for question in flat], dtype=np.int16)
        programs = [encode_program(question.program) for question in flat]
        parts = [pad_rows([program[part] for program in programs], dtype=np.int16) for part in (0, 1)]
        self.programs = np.stack(parts, axis=1)
        self.program_lengths = np.array([len(question.program) for question in flat])
        self.answers = np.array([ANSWER_IDS[question.answer] for question in flat])
        self.types = TYPE_OF[self.programs[np.arange(len(flat)), 0, self.program_lengths - 1]]

    def __len__(self) -> int:
        return len(self.images)

    def questions_of(self, scene: int) -> np.ndarray:
        """Return the numbers of the questions of a scene."""
        return np.arange(self.first[scene], self.first[scene + 1])

    def batch(
        self, scenes: np.ndarray, questions: Sequence[np.ndarray], categories: Sequence[bool] = (True,)
    ) -> SceneBatch:
        """Return some scenes with some of their questions.

        Args:
            scenes: (S,) numbers of the scenes.
            questions: for each scene the numbers of its questions.
            categories: the categories to which all scenes of the batch belong.
        """
        most = int(self.objects[scenes].max())
        chosen = pad_rows([each + 1 for each in questions]) - 1  # −1: absent
        longest = int((self.words[chosen.clip(0)] > 0).sum(axis=-1).max())
        steps = int(self.program_lengths[chosen.clip(0)].max())
        programs = self.programs[chosen, ..., :steps].astype(np.int64) * (chosen >= 0)[..., None, None]
        height, width = self.images.shape[1:3]
        positions = self.positions[scenes, :most]
        is_there = np.arange(most) < self.objects[scenes, None]
        return SceneBatch(
            crops=torch.from_numpy(self._crops(scenes, positions, is_there)),
            positions=torch.from_numpy(2 * positions / np.array((width, height), dtype=np.float32) - 1),
            objects=torch.from_numpy(self.objects[scenes]),
            questions=torch.from_numpy(self.words[chosen, :longest].astype(np.int64) * (chosen >= 0)[..., None]),
            operators=torch.from_numpy(programs[:, :, 0]),
            arguments=torch.from_numpy(programs[:, :, 1]),
            types=torch.from_numpy(self.types[chosen].clip(0)),
            targets=torch.from_numpy(np.where(chosen >= 0, self.answers[chosen], IGNORED)),
            categories=torch.tensor(categories).expand(len(scenes), -1).clone(),
        )

    def _crops(self, scenes: np.ndarray, positions: np.ndarray, is_there: np.ndarray) -> np.ndarray:
        padded = np.pad(self.images[scenes], ((0, 0), (CROP, CROP), (CROP, CROP), (0, 0)))
        corners = np.rint(positions).astype(int) + CROP // 2  # of the crops in the padded pictures
        span = np.arange(CROP)
        rows, columns = corners[..., 1, None, None] + span[:, None], corners[..., 0, None, None] + span
        found = padded[np.arange(len(scenes))[:, None, None, None], rows, columns]
        return found * is_there[..., None, None, None].astype(np.uint8)


def generate_collection(
    size: int,
    questions: int,
    objects: Sequence[int],
    max_length: int,
    vocabulary: QuestionVocabulary,
    seed: int,
    attributes: Sequence[str] = tuple(ATTRIBUTES),
) -> SceneCollection:
    """Generate scenes with questions.

    Args:
        size: number of scenes.
        questions: number of questions of each scene.
        objects: smallest and largest number of objects; the numbers are uniform between them.
        max_length: largest number of steps of a program.
        vocabulary: the words of questions.
        seed: seed of all draws.
        attributes: the attributes that questions name.
    """
    generator = np.random.default_rng(seed)
    numbers = generator.integers(objects[0], objects[1] + 1, size)
    scenes = [draw_scene(generator, number) for number in numbers]
    questioners = (Questioner(scene, generator, max_length, attributes) for scene in scenes)
    asked = [[questioner.draw() for _ in range(questions)] for questioner in questioners]
    return SceneCollection(render(scenes, generator), [scene.positions for scene in scenes], asked, vocabulary)
