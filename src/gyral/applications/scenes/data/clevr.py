"""CLEVR's own files: images, scenes and questions (Johnson et al., CVPR 2017)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field, FiniteFloat, StringConstraints, TypeAdapter, ValidationError

from gyral.applications.scenes.data.collection import SceneCollection
from gyral.applications.scenes.data.language import (
    ANSWER_IDS,
    ATTRIBUTES,
    KINDS,
    MAX_OBJECTS,
    OPERATOR_IDS,
    OPERATORS,
    QuestionVocabulary,
    Step,
    split_words,
)
from gyral.applications.scenes.data.questions import Question
from gyral.core.errors import OptionError, UserError
from gyral.core.inputs import excerpt, open_input, read_bytes

Form = TypeVar("Form")
FileName = Annotated[str, StringConstraints(pattern=r"^[^/\x00]*[^/\x00.][^/\x00]*$")]  # in its own folder

SCALE = 4  # by which pictures of 480 × 320 are reduced
LARGEST = 4096  # side of a picture, in pixels
RENAMED = {"equal_integer": "equal_number", "less_than": "fewer", "greater_than": "more"}


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a program: the numbers of the nodes whose results it takes, its function, and its arguments.

    Some versions of the files call the function `type` and the arguments `side_inputs`.
    """

    inputs: list[int]
    function: str = ""
    type: str = ""
    value_inputs: list[str] = field(default_factory=list)
    side_inputs: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a picture."""

    question: str
    answer: str | int | bool
    image_filename: FileName
    program: list[Node]


@dataclass(frozen=True, slots=True)
class Questions:
    """The file of questions."""

    questions: list[Asked]


@dataclass(frozen=True, slots=True)
class Thing:
    """An object of a picture: x, y and depth."""

    pixel_coords: Annotated[list[FiniteFloat], Field(min_length=2)]


@dataclass(frozen=True, slots=True)
class Described:
    """The objects of a picture."""

    image_filename: FileName
    objects: list[Thing]


@dataclass(frozen=True, slots=True)
class Scenes:
    """The file of scenes."""

    scenes: list[Described]


QUESTIONS, SCENES = TypeAdapter(Questions), TypeAdapter(Scenes)


def load_clevr(
    folder: str | Path, sizes: dict[str, int | None], max_length: int
) -> tuple[dict[str, SceneCollection], QuestionVocabulary]:
    """Return CLEVR or excerpts of it as splits, and the vocabulary of the training questions.

    The training split has the first scenes of CLEVR's training split, validation the last ones; the test split has the
    first scenes of CLEVR's validation split, because its test split has no answers. Questions whose programs are longer
    than `max_length` are left out, and then scenes without questions. The pictures of all 70,000 training scenes take
    2 GB of memory.

    Args:
        folder: the folder CLEVR_v1.0, with images/, questions/ and scenes/.
        sizes: number of scenes of each split; None, for train: all but those of validation; for test: all.
        max_length: largest number of steps of a program in the operators of `gyral.applications.scenes.data.language`.

    Raises:
        OptionError: a file is missing or not in the format.
    """
    root = Path(folder)
    if not root.is_dir():
        reason = "is not a folder; must be the folder of CLEVR, with images/, questions/ and scenes/"
        raise OptionError("clevr", folder, reason)
    held_out = sizes["val"] or 0
    ranges = {
        "train": ("train", slice(-held_out if sizes["train"] is None else sizes["train"])),
        "val": ("train", slice(-held_out, None)),
        "test": ("val", slice(sizes["test"])),
    }
    read = {name: _read_split(root, name, max_length) for name in ("train", "val")}
    if len(read["train"]) < (sizes["train"] or 1) + held_out:
        reason = f"CLEVR's training split has {len(read['train']):,} scenes for train_scenes and val_scenes together"
        raise OptionError("train_scenes", sizes["train"], reason)
    chosen = {split: read[name][part] for split, (name, part) in ranges.items()}
    vocabulary = QuestionVocabulary(
        sorted({word for *_, questions in chosen["train"] for question in questions for word in question.words})
    )
    collections = {split: SceneCollection(*_read_scenes(root, scenes), vocabulary) for split, scenes in chosen.items()}
    return collections, vocabulary


def _read_split(root: Path, name: str, max_length: int) -> list[tuple[Path, np.ndarray, list[Question]]]:
    """Return the path, the positions of objects and the questions of each scene of a split."""
    questions: dict[str, list[Question]] = {}
    path = root / "questions" / f"CLEVR_{name}_questions.json"
    for number, entry in enumerate(_read_json(root, path, QUESTIONS).questions):
        words, answer = split_words(entry.question), str(entry.answer)
        try:
            program = convert_program(entry.program, max_length)
        except UserError as error:
            raise _wrong(root, path, f"questions.{number}: {error}") from None
        if not words or answer not in ANSWER_IDS:
            reason = "the question has no words" if not words else f"the answer {excerpt([answer])} is unknown"
            raise _wrong(root, path, f"questions.{number}: {reason}")
        if program is not None:
            questions.setdefault(entry.image_filename, []).append(Question(words, program, answer))
    found = []
    for scene in _read_json(root, root / "scenes" / f"CLEVR_{name}_scenes.json", SCENES).scenes:
        image = scene.image_filename
        if image in questions and 1 <= len(scene.objects) <= MAX_OBJECTS:
            places = np.array([each.pixel_coords[:2] for each in scene.objects], dtype=np.float32) / SCALE
            found.append((root / "images" / name / image, places, questions[image]))
    if not found:
        reason = f"the {name} split has no question with a program of at most {max_length} steps"
        raise OptionError("clevr", root, reason)
    return found


def convert_program(program: Sequence[Node], max_length: int) -> list[Step] | None:
    """Return a program of CLEVR in the operators of `gyral.applications.scenes.data.language`.

    `unique` is left out, and so are `count` and `query` below comparisons, which take sets. The steps of a node that
    several others take are repeated, so that few nodes may stand for very many steps.

    Args:
        program: its nodes; each takes the results of nodes before it, and the last one is the answer.
        max_length: the most steps. None is returned if there are more.

    Raises:
        UserError: it is not a program.
    """
    converted: list[tuple[list[Step] | None, list[Step] | None]] = []  # of each node, and of it below a comparison
    for node in program:
        name = node.type or node.function
        operator = name.partition("_")[0]
        if not all(0 <= source < len(converted) for source in node.inputs):
            raise UserError("a node of the program takes the result of one that is not before it")
        is_comparison = operator == "equal" or name in RENAMED
        parts = [converted[source][is_comparison] for source in node.inputs]
        inside = _join([part for part in parts if part is not None], max_length) if None not in parts else None
        step = None if operator == "unique" else _convert_node(name, node)
        whole = inside if step is None or inside is None else _join([inside, [step]], max_length)
        converted.append((whole, inside if operator in ("count", "query") else whole))
    if not converted:
        raise UserError("the program is empty")
    steps = converted[-1][0]
    if steps is not None:
        _check_stack(steps)
    return steps


def _join(parts: list[list[Step]], max_length: int) -> list[Step] | None:
    """Return the steps of several lists; None if they are too many."""
    return [step for part in parts for step in part] if sum(map(len, parts)) <= max_length else None


def _convert_node(name: str, node: Node) -> Step:
    """Return the step of a node."""
    operator, _, rest = name.partition("_")
    values = node.value_inputs or node.side_inputs or [""]
    if name in RENAMED:
        return Step(RENAMED[name])
    if operator in ("filter", "relate"):
        if values[0] not in KINDS[OPERATORS[OPERATOR_IDS[operator]].argument]:
            raise UserError(f"{excerpt([name])}: unknown argument {excerpt([values[0]])} of a program of CLEVR")
        return Step(operator, values[0])
    if operator in ("query", "same", "equal") and rest in ATTRIBUTES:
        return Step(operator, rest)
    if name not in OPERATOR_IDS or OPERATORS[OPERATOR_IDS[name]].argument:
        raise UserError(f"{excerpt([name])}: unknown function of a program of CLEVR")
    return Step(name)


def _check_stack(steps: list[Step]) -> None:
    """Check that each step has the sets that it takes, and that the last one alone gives an answer."""
    sets = 0
    for number, step in enumerate(steps, start=1):
        operator = OPERATORS[OPERATOR_IDS[step.operator]]
        if operator.takes > sets:
            raise UserError(f"{step} of the program takes {operator.takes} sets and has {sets}")
        sets += 1 - operator.takes
        if bool(operator.type) != (number == len(steps)):
            raise UserError(f"{step} of the program must {'' if operator.type else 'not '}be its end")
    if sets != 1:
        raise UserError(f"the program leaves {sets - 1} sets that nothing takes")


def _read_json(root: Path, path: Path, form: TypeAdapter[Form]) -> Form:
    content = read_bytes("clevr", root, path)
    try:
        return form.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _wrong(root, path, f"{place}{': ' if place else ''}{first['msg']}") from None


def _wrong(root: Path, path: Path, reason: str) -> OptionError:
    return OptionError("clevr", root, f"{path}: {reason}")


def _read_scenes(
    root: Path, scenes: list[tuple[Path, np.ndarray, list[Question]]]
) -> tuple[np.ndarray, list[np.ndarray], list[list[Question]]]:
    """Return the pictures, the places of objects and the questions of scenes."""
    images = np.empty((len(scenes), *_read_image(root, scenes[0][0]).shape), dtype=np.uint8)
    for number, (path, places, _) in enumerate(scenes):
        image = _read_image(root, path)
        if image.shape != images.shape[1:]:
            raise _wrong(root, path, f"must be as large as {scenes[0][0]}")
        images[number] = image
        height, width, _ = image.shape
        if not ((places >= 0) & (places <= (width, height))).all():
            size = f"{SCALE * width} × {SCALE * height}"
            reason = f"the pixel_coords of the objects of {path.name} must be within the picture, {size}"
            raise _wrong(root, root / "scenes" / f"CLEVR_{path.parent.name}_scenes.json", reason)
    return images, [places for _, places, _ in scenes], [questions for _, _, questions in scenes]


def _read_image(root: Path, path: Path) -> np.ndarray:
    from PIL import Image  # a dependency of matplotlib

    with open_input("clevr", root, path) as file:
        try:
            with Image.open(file, formats=("PNG", "JPEG")) as image:
                if max(image.size) > LARGEST:
                    raise _wrong(root, path, f"is larger than {LARGEST} × {LARGEST}")
                return np.asarray(image.convert("RGB").reduce(SCALE))
        except UserError:
            raise
        except Exception as error:  # damaged pictures raise many kinds
            reason = excerpt(str(error).splitlines()[:1]) or type(error).__name__
            raise _wrong(root, path, f"cannot be read as a picture ({reason})") from None
