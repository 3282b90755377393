"""Questions about scenes of objects as in CLEVR, for models that learn concepts from answers.

An example:

    input       how many cubes left of the red sphere are there (5 objects)
    program     count(filter(cube, relate(left, filter(red, filter(sphere, scene)))))
    target      2
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gyral.applications.scenes.data.clevr import load_clevr
from gyral.applications.scenes.data.collection import SceneBatch, SceneCollection, generate_collection
from gyral.applications.scenes.data.curriculum import Lessons
from gyral.applications.scenes.data.language import (
    ANSWERS,
    ATTRIBUTES,
    MAX_OBJECTS,
    TYPES,
    QuestionVocabulary,
    decode_program,
    nested,
)
from gyral.applications.scenes.data.questions import all_words
from gyral.applications.scenes.models.concept_learner import Answers, SceneModel
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import ACCURACY, SPLITS, percentage
from gyral.core.options import Increasing, NonNegativeInt, PositiveInt, Range
from gyral.data.batching import IGNORED, Stream, mix_seed
from gyral.tasks.baselines import frequency_loss
from gyral.tasks.data_module import SplitData
from gyral.tasks.data_task import DataOptionsTask
from gyral.tasks.metrics import CategoryMetrics, CategoryShares
from gyral.tasks.objective import Classification

log = logging.getLogger(__name__)
MORE_OBJECTS = "more_objects"  # the category of test scenes with more objects than in training
MAX_STEPS = 30  # largest number of steps of a program


class SceneStream(Stream[SceneBatch]):
    """Training batches of scenes and questions within the bounds of the current lesson.

    Batch i depends only on the seed, i and the lesson.

    Args:
        scenes: the scenes.
        lessons: the curriculum.
        batch_size: scenes per batch.
        questions: questions of each scene.
        seed: seed of all draws.
        length: number of batches in the stream.
    """

    def __init__(
        self, scenes: SceneCollection, lessons: Lessons, *, batch_size: int, questions: int, seed: int, length: int
    ) -> None:
        super().__init__(length)
        self.scenes = scenes
        self.lessons = lessons
        self.batch_size = batch_size
        self.questions = questions
        self.seed = seed
        self._allowed: dict[int, dict[int, np.ndarray]] = {}  # by lesson, the questions of each scene

    def __iter__(self) -> Iterator[SceneBatch]:
        while self.position < self.length:
            self.position += 1
            yield self._draw(self.position - 1)

    def _draw(self, index: int) -> SceneBatch:
        generator = np.random.default_rng(mix_seed(self.seed, f"train {index}"))
        allowed = self._allowed_questions()
        scenes = generator.choice(list(allowed), self.batch_size, replace=len(allowed) < self.batch_size)
        chosen = [
            generator.choice(own, self.questions, replace=len(own) < self.questions)
            for own in (allowed[scene] for scene in scenes.tolist())
        ]
        return self.scenes.batch(scenes, chosen)

    def _allowed_questions(self) -> dict[int, np.ndarray]:
        level = self.lessons.level
        if level not in self._allowed:
            objects, steps = self.lessons.bounds or (MAX_OBJECTS, np.inf)
            found = {}
            for scene in np.flatnonzero(self.scenes.objects <= objects).tolist():
                own = self.scenes.questions_of(scene)
                own = own[self.scenes.program_lengths[own] <= steps]
                if len(own):
                    found[scene] = own
            if not found:
                raise OptionError("lessons", self.lessons.lessons, f"lesson {level + 1} has no question")
            self._allowed = {level: found}
        return self._allowed[level]


class OrderedScenes:
    """One pass over the scenes of one or several collections with all their questions.

    Args:
        collections: the collections, each with the categories to which its scenes belong.
        batch_size: scenes per batch.
    """

    def __init__(self, collections: Sequence[tuple[SceneCollection, Sequence[bool]]], batch_size: int) -> None:
        self.parts = [
            (scenes, categories, np.arange(start, min(start + batch_size, len(scenes))))
            for scenes, categories in collections
            for start in range(0, len(scenes), batch_size)
        ]

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[SceneBatch]:
        for scenes, categories, rows in self.parts:
            yield scenes.batch(rows, [scenes.questions_of(row) for row in rows.tolist()], categories)


class SceneData(SplitData):
    """Scenes with questions. A test may also have scenes with more objects, which are a second category.

    Args:
        objects: smallest and largest number of objects of a scene.
        more_objects: the same for the second category of the test; None: there is no second category.
        train_scenes, val_scenes, test_scenes: scenes in each split; the second category has
            `test_scenes`, too. None, for `train_scenes` and `test_scenes` with `clevr`: all scenes.
        questions: questions of each scene.
        attributes: the attributes that questions name, of shape, color, size and material; None: all.
        max_length: largest number of steps of a program.
        lessons, threshold: see `gyral.applications.scenes.data.curriculum.Lessons`.
        clevr: folder of CLEVR, with images/, questions/ and scenes/; see
            `gyral.applications.scenes.data.clevr.load_clevr`. The sizes are then the sizes of its excerpts, and
            `objects`, `more_objects`, `questions` and `attributes` have no effect. None: generated scenes.
        batch_size, eval_batch_size: scenes per batch, in training and in evaluation.
        batch_questions: questions of each scene in a training batch.
        data_seed: seed of the scenes and of the training batches.

    Attributes:
        splits: the scenes of train, val and test, and of `MORE_OBJECTS` if there are any.
        curriculum: the lessons.
        vocabulary: the words of the questions.

    Raises:
        UserError: an option is out of bounds, or a file is missing or not in the format.
    """

    follows_training = True
    small: ClassVar = {
        "train_scenes": 30,
        "val_scenes": 12,
        "test_scenes": 6,
        "questions": 5,
        "lessons": [[5, 6]],
        "batch_size": 8,
        "eval_batch_size": 5,
    }

    objects: Annotated[Sequence[int], Increasing(count=2)] = (3, 6)
    more_objects: Annotated[Sequence[int], Increasing(count=2)] | None = (7, 10)
    train_scenes: PositiveInt | None = 2000
    val_scenes: PositiveInt = 100
    test_scenes: PositiveInt | None = 200
    questions: PositiveInt = 10
    attributes: Sequence[str] | None = None
    max_length: Annotated[int, Range(3, MAX_STEPS)] = 12
    lessons: Sequence[Sequence[int]] = ((4, 4), (5, 6), (6, 9))
    threshold: Annotated[float, Range(above=0, maximum=1)] = 0.9
    clevr: str | Path | None = None
    batch_size: PositiveInt = 32
    eval_batch_size: PositiveInt = 50
    batch_questions: PositiveInt = 8
    data_seed: NonNegativeInt = 0

    def check(self) -> None:
        for name in ("train_scenes", "test_scenes") if self.clevr is None else ():
            check_integer(name, getattr(self, name))
        for name in ("objects", "more_objects"):
            bounds = getattr(self, name)
            if bounds is not None and bounds[1] > MAX_OBJECTS:
                raise OptionError(name, bounds, f"must be at most {MAX_OBJECTS}")
        if self.attributes is not None:
            check_attributes(self.attributes)
        Lessons(self.lessons, self.threshold)

    def __post_init__(self) -> None:
        self.curriculum = Lessons(self.lessons, self.threshold)
        sizes = {"train": self.train_scenes, "val": self.val_scenes, "test": self.test_scenes}
        if self.clevr is None:
            self.vocabulary = QuestionVocabulary(all_words())
            self.splits = {
                "train": self._generate("train", self.train_scenes, self.objects),
                "val": self._generate("val", self.val_scenes, self.objects),
                "test": self._generate("test", self.test_scenes, self.objects),
            }
            if self.more_objects is not None:
                self.splits[MORE_OBJECTS] = self._generate(MORE_OBJECTS, self.test_scenes, self.more_objects)
        else:
            self.splits, self.vocabulary = load_clevr(self.clevr, sizes, self.max_length)
        log.info("scenes: %s", ", ".join(f"{len(own):,} in {split}" for split, own in self.splits.items()))

    def _generate(self, split: str, size: int | None, objects: Sequence[int]) -> SceneCollection:
        """Return the scenes of a split."""
        assert size is not None
        names = tuple(ATTRIBUTES) if self.attributes is None else check_attributes(self.attributes)
        seed = mix_seed(self.data_seed, split)
        return generate_collection(size, self.questions, objects, self.max_length, self.vocabulary, seed, names)

    def loader(self, split: str) -> OrderedScenes:
        """Return the scenes of a split in order, for evaluation; scenes with more objects come last."""
        own = self.splits[check_choice("split", split, SPLITS)]
        more = self.splits.get(MORE_OBJECTS) if split == "test" else None
        further = [] if more is None else [(more, (False, True))]
        return OrderedScenes([(own, (True, False)), *further], self.eval_batch_size)

    def stream(self) -> SceneStream:
        """Return the training stream."""
        sizes = {"batch_size": self.batch_size, "questions": self.batch_questions}
        return SceneStream(self.splits["train"], self.curriculum, seed=self.data_seed, length=self.steps(), **sizes)


class SceneMetrics(CategoryMetrics):
    """Loss, accuracy, and accuracy on the current lesson; a test adds accuracies by type and with more objects."""

    names = (*CategoryMetrics.names, "accuracy", "lesson_accuracy")

    def __init__(self, lessons: Lessons) -> None:
        more = [f"{MORE_OBJECTS}_{type_}" for type_ in TYPES]
        super().__init__([*TYPES, MORE_OBJECTS, *more])
        self.accuracy = CategoryShares(len(self.categories))
        self.lesson_accuracy = CategoryShares(len(self.categories))
        self._lessons = lessons

    def update(self, outputs: Tensor, batch: SceneBatch, loss: Tensor) -> None:
        """Add one batch: the scores (S, K, answers) and the mean loss."""
        is_asked = batch.targets != IGNORED
        targets, types = batch.targets[is_asked], batch.types[is_asked]
        right = outputs[is_asked].argmax(dim=1) == targets
        ones = torch.ones_like(right)
        of_type = types.unsqueeze(1) == torch.arange(len(TYPES), device=types.device)
        own, more = batch.categories[is_asked.nonzero()[:, 0], :2].unsqueeze(2).unbind(1)
        categories = torch.cat((own, own & of_type, more, more & of_type), dim=1)
        self.update_loss(loss, is_asked.sum(), categories)
        self.accuracy.update(right, ones, categories)
        objects, steps = self._lessons.bounds or (MAX_OBJECTS, batch.operators.shape[-1])
        lengths = (batch.operators[is_asked] > 0).sum(dim=1)
        in_lesson = (lengths <= steps) & (batch.objects[is_asked.nonzero()[:, 0]] <= objects)
        in_lesson = in_lesson.unsqueeze(1) & own
        # of the first category alone
        self.lesson_accuracy.update(right, ones, torch.nn.functional.pad(in_lesson, (0, categories.shape[1] - 1)))


class ScenesTask(DataOptionsTask[SceneData]):
    """Questions about scenes. The model determines whether training uses programs or only answers.

    The accuracy is reported over all questions and, in a test, by type, and on scenes with more objects than in
    training. The baseline is the loss on the test split of a predictor that knows the frequency of each answer in
    training.

    Args:
        model: makes the model from the vocabulary and the largest number of steps of a program.
        **options: see `SceneData`, and `gyral.tasks.base.Task`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds, or a file is missing or not in the format.
    """

    measures = (
        ACCURACY,
        percentage(f"accuracy_{MORE_OBJECTS}", "accuracy, more objects"),
        *(percentage(f"accuracy_{type_}", f"accuracy, {type_.replace('_', ' ')}") for type_ in TYPES),
    )
    data_class = SceneData
    metrics: SceneMetrics
    model_type = SceneModel
    generators: ClassVar = {"answer_scene": "gyral.applications.scenes.generation.answer_scene"}

    @classmethod
    def arguments(cls, data: SceneData) -> dict[str, Any]:
        return {
            "sizes": {"vocabulary": data.vocabulary, "max_length": data.max_length},
            "objective": Classification(len(ANSWERS)),
            "baseline": partial(_baseline, data),
            "metrics": SceneMetrics(data.curriculum),
        }

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        """Return the numbers of all tasks and the number of the lesson, from 1."""
        return {**super().data_metrics(split), "lesson": 1.0 + self.data.curriculum.level}

    def forward(self, batch: SceneBatch) -> Tensor | Answers:
        """Return the scores of the answers (S, K, answers); in training, also the loss of the parser."""
        found: Tensor | Answers = self.model(batch)
        return found

    def loss(self, outputs: Tensor | Answers, batch: SceneBatch) -> Tensor:
        """Return the mean cross-entropy of the answers in nats; in training, plus the loss of the parser."""
        if isinstance(outputs, Answers):
            return super().loss(outputs.scores, batch) + outputs.parser_loss
        return super().loss(outputs, batch)

    def predict(self, batch: SceneBatch) -> Tensor:
        """Return the most likely answers (S, K)."""
        with self.evaluating():
            return super().predict(batch)

    def render(self, batch: SceneBatch, predicted: Tensor, row: int = 0) -> str:
        words = self.data.vocabulary.decode(batch.questions[row, 0].tolist())
        program = decode_program(batch.operators[row, 0].tolist(), batch.arguments[row, 0].tolist())
        lines = {
            "input": f"{' '.join(words)} ({int(batch.objects[row])} objects)",
            "program": nested(program),
            "target": ANSWERS[batch.targets[row, 0]],
            "prediction": ANSWERS[predicted[row, 0]],
        }
        return "\n".join(f"{name:<12}{line}" for name, line in lines.items())

    def step_validation(self, monitored: Tensor) -> None:
        super().step_validation(monitored)
        self.data.curriculum.update(self._lesson_accuracy)

    def on_validation_epoch_end(self) -> None:
        self._lesson_accuracy = self.metrics.lesson_accuracy.compute()[0].item()  # before the base class resets it
        super().on_validation_epoch_end()

    def symbols(self) -> Sequence[str]:
        return self.data.vocabulary.words

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["curriculum"] = self.data.curriculum.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.data.curriculum.load_state_dict(checkpoint["curriculum"])


def check_attributes(value: Any) -> tuple[str, ...]:
    """Return the attributes that questions name, or raise `OptionError`."""
    known = tuple(ATTRIBUTES)
    if isinstance(value, str) or not isinstance(value, Sequence) or not value or any(n not in known for n in value):
        raise OptionError("attributes", value, f"must be one or more of {', '.join(ATTRIBUTES)}")
    return tuple(name for name in known if name in value)


def _baseline(data: SceneData, split: str) -> float:
    return frequency_loss(data.splits["train"].answers, data.splits[split].answers, len(ANSWERS))
