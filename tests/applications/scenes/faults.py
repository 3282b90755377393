"""Inputs of scenes for the suites of tests/faults."""

import functools
import json
from pathlib import Path
from random import Random

import pytest
from PIL import Image

from tests.faults.inputs import RUN, Input, train_on
from tests.helpers.running import SMALL

MODEL = (
    *("task=scenes", "model=concept_learner", "model.features=8", "model.embedding_size=4"),
    *("model.encoder.hidden_size=4", "model.decoder.hidden_size=4", *RUN),
)
SIZES = {
    **{"train_scenes": 2, "val_scenes": 1, "test_scenes": 3, "questions": 2},
    **{"batch_size": 2, "eval_batch_size": 2, "batch_questions": 1, "lessons": []},
}
PROGRAM = [
    {"function": "scene", "inputs": [], "value_inputs": []},
    {"function": "filter_color", "inputs": [0], "value_inputs": ["red"]},
    {"function": "unique", "inputs": [1], "value_inputs": []},
    {"function": "relate", "inputs": [2], "value_inputs": ["left"]},
    {"function": "count", "inputs": [3], "value_inputs": []},
]


def clevr(folder: Path, random: Random, patch: pytest.MonkeyPatch, kind: str) -> Input:
    """CLEVR with three scenes a split; one of its questions, scenes or images is damaged."""
    root = folder / "CLEVR_v1.0"
    files: dict[str, list[Path]] = {"images": [], "scenes": [], "questions": []}
    for split in ("train", "val"):
        names = [f"CLEVR_{split}_{number:06}.png" for number in range(3)]
        (root / "images" / split).mkdir(parents=True)
        for name in names:
            files["images"].append(root / "images" / split / name)
            Image.new("RGB", (96, 64), (200, 10, 10)).save(files["images"][-1])
        objects = [{"pixel_coords": [20, 16, 9.0]}, {"pixel_coords": [60, 40, 9.0]}]
        asked = {"question": "How many things are left of the red thing?", "answer": "1", "program": PROGRAM}
        contents = {
            "scenes": [{"image_filename": name, "objects": objects} for name in names],
            "questions": [{"image_filename": name, **asked} for name in names for _ in range(2)],
        }
        for name, content in contents.items():
            (root / name).mkdir(exist_ok=True)
            files[name].append(root / name / f"CLEVR_{split}_{name}.json")
            files[name][-1].write_text(json.dumps({name: content}))
    named = ("clevr", "train_scenes")
    return train_on(MODEL, {"clevr": str(root), **SIZES}, files[kind], named, names_folder=True)


def small_run(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    sizes = ("task.train_scenes=20", "task.val_scenes=10", "task.test_scenes=4", "task.questions=5")
    lessons = ("task.threshold=0.001", "task.lessons=[[6,4],[6,5],[6,6],[6,8]]")  # a new lesson at each validation
    model = ("model=concept_learner", "model.encoder.hidden_size=8", "model.decoder.hidden_size=8", "optimizer=adam")
    plain = (option for option in SMALL if not option.startswith(("model.", "task.")))
    return (*plain, "task=scenes", *sizes, "task.batch_size=4", "task.batch_questions=3", *lessons, *model)


LOADERS = {f"scenes.clevr {kind}": functools.partial(clevr, kind=kind) for kind in ("images", "scenes", "questions")}
SMALL_RUNS = {"scenes": small_run}
