"""CLEVR's own files: images, scenes and questions (Johnson et al., CVPR 2017)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gyral.applications.scenes.data.collection import SceneCollection
from gyral.applications.scenes.data.language import (
    ATTRIBUTES,
    MAX_OBJECTS,
    OPERATOR_IDS,
    QuestionVocabulary,
    Step,
    split_words,
)
from gyral.applications.scenes.data.questions import Question
from gyral.core.errors import OptionError, UserError

SCALE = 4  # reduction factor of the pictures of 480 × 320
RENAMED = {"equal_integer": "equal_number", "less_than": "fewer", "greater_than": "more"}


def load_clevr(
    folder: str | Path, sizes: dict[str, int], max_length: int
) -> tuple[dict[str, SceneCollection], QuestionVocabulary]:
    """Return excerpts of CLEVR as splits, and the vocabulary of the training questions.

    The training split has the first scenes of CLEVR's training split, validation the last ones; the test split has the
    first scenes of CLEVR's validation split, because its test split has no answers. Questions whose programs are longer
    than `max_length` are left out, and then scenes without questions.

    Args:
        folder: the folder CLEVR_v1.0, with images/, questions/ and scenes/.
        sizes: number of scenes of each split.
        max_length: largest number of steps of a program in the operators of `gyral.applications.scenes.data.language`.

    Raises:
        UserError: a file is missing or not in the format.
    """
    root = Path(folder)
    if not root.is_dir():
        reason = "is not a folder; must be the folder of CLEVR, with images/, questions/ and scenes/"
        raise OptionError("clevr", folder, reason)
    ranges = {
        "train": ("train", slice(sizes["train"])),
        "val": ("train", slice(-sizes["val"], None)),
        "test": ("val", slice(sizes["test"])),
    }
    read = {name: _read_split(root, name, max_length) for name in ("train", "val")}
    if len(read["train"]) < sizes["train"] + sizes["val"]:
        reason = f"CLEVR's training split has {len(read['train']):,} scenes for train_scenes and val_scenes together"
        raise OptionError("train_scenes", sizes["train"], reason)
    chosen = {split: read[name][part] for split, (name, part) in ranges.items()}
    vocabulary = QuestionVocabulary(
        sorted({word for *_, questions in chosen["train"] for question in questions for word in question.words})
    )
    collections = {
        split: SceneCollection(
            np.stack([_read_image(path) for path, _, _ in scenes]),
            [places for _, places, _ in scenes],
            [questions for _, _, questions in scenes],
            vocabulary,
        )
        for split, scenes in chosen.items()
    }
    return collections, vocabulary


def _read_split(root: Path, name: str, max_length: int) -> list[tuple[Path, np.ndarray, list[Question]]]:
    """Return the path, the positions of objects and the questions of each scene of a split."""
    questions: dict[str, list[Question]] = {}
    for entry in _read_json(root / "questions" / f"CLEVR_{name}_questions.json", "questions"):
        program = convert_program(entry["program"])
        if len(program) <= max_length:
            asked = Question(split_words(entry["question"]), program, str(entry["answer"]))
            questions.setdefault(entry["image_filename"], []).append(asked)
    found = []
    for scene in _read_json(root / "scenes" / f"CLEVR_{name}_scenes.json", "scenes"):
        image = scene["image_filename"]
        if image in questions and len(scene["objects"]) <= MAX_OBJECTS:
            places = np.array([each["pixel_coords"][:2] for each in scene["objects"]], dtype=np.float32) / SCALE
            found.append((root / "images" / name / image, places, questions[image]))
    if not found:
        raise UserError(f"{root}: the {name} split has no question with a program of at most {max_length} steps")
    return found


def convert_program(program: Sequence[dict[str, Any]]) -> list[Step]:
    """Return a program of CLEVR in the operators of `gyral.applications.scenes.data.language`.

    `unique` is left out, and so are `count` and `query` below comparisons, which take sets.
    """

    def visit(index: int, is_compared: bool) -> list[Step]:
        node = program[index]
        name = str(node.get("type", node.get("function")))
        values = node.get("value_inputs", node.get("side_inputs", []))
        operator, _, rest = name.partition("_")
        compares = operator == "equal" or name in RENAMED
        inside = [step for source in node["inputs"] for step in visit(source, compares)]
        if operator == "unique" or (is_compared and operator in ("count", "query")):
            return inside
        if name in RENAMED:
            return [*inside, Step(RENAMED[name])]
        if operator in ("filter", "relate"):
            return [*inside, Step(operator, values[0])]
        if operator in ("query", "same", "equal") and rest in ATTRIBUTES:
            return [*inside, Step(operator, rest)]
        if name not in OPERATOR_IDS:
            raise UserError(f"{name}: unknown function of a program of CLEVR")
        return [*inside, Step(name)]

    return visit(len(program) - 1, False)


def _read_json(path: Path, key: str) -> list[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            found: list[dict[str, Any]] = json.load(file)[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: cannot be read as CLEVR's {key} ({error})") from None
    return found


def _read_image(path: Path) -> np.ndarray:
    from PIL import Image  # a dependency of matplotlib

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB").reduce(SCALE))
    except OSError as error:
        raise UserError(f"{path}: cannot be read as a picture ({error})") from None
