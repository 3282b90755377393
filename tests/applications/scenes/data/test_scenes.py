"""Generated scenes and questions, the curriculum, and the files of CLEVR."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gyral.applications.scenes.data.clevr import Node, convert_program, load_clevr
from gyral.applications.scenes.data.collection import CROP, generate_collection
from gyral.applications.scenes.data.curriculum import Lessons
from gyral.applications.scenes.data.language import ATTRIBUTES, QuestionVocabulary, Step, nested, split_words
from gyral.applications.scenes.data.questions import Questioner, all_words
from gyral.applications.scenes.data.world import HEIGHT, MARGIN, RADII, WIDTH, Scene, draw_scene
from gyral.core.errors import OptionError, UserError

VOCABULARY = QuestionVocabulary(all_words())


def answer(scene: Scene, program: list[Step]) -> str:
    """Return the answer of a program, from its definition with sets."""
    names = [
        {key: ATTRIBUTES[key][value] for key, value in zip(ATTRIBUTES, row, strict=True)}
        for row in scene.values.tolist()
    ]
    axis = {"left": (0, -1), "right": (0, 1), "behind": (1, -1), "front": (1, 1)}
    stack: list[set[int]] = []

    def only(members: set[int]) -> int:
        assert len(members) == 1, "a phrase with 'the' fits one object"
        return next(iter(members))

    for operator, argument in program:
        if operator == "scene":
            stack.append(set(range(len(names))))
        elif operator == "filter":
            stack.append({n for n in stack.pop() if argument in names[n].values()})
        elif operator == "relate":
            own, (column, sign) = only(stack.pop()), axis[argument]
            places = scene.positions[:, column]
            stack.append({n for n in range(len(names)) if sign * (places[n] - places[own]) > 0})
        elif operator == "same":
            own = only(stack.pop())
            stack.append({n for n in range(len(names)) if n != own and names[n][argument] == names[own][argument]})
        elif operator in ("intersect", "union"):
            one, other = stack.pop(), stack.pop()
            stack.append(one & other if operator == "intersect" else one | other)
        elif operator == "query":
            return names[only(stack.pop())][argument]
        elif operator == "count":
            return str(len(stack.pop()))
        else:
            second = stack.pop()
            first = stack.pop() if stack else set()
            if operator == "equal":
                is_true = names[only(first)][argument] == names[only(second)][argument]
            else:
                one, other = len(first), len(second)
                is_true = {
                    "exist": bool(second),
                    "more": one > other,
                    "fewer": one < other,
                    "equal_number": one == other,
                }[operator]
            return "yes" if is_true else "no"
    raise AssertionError("the program has no end")


def test_questions_have_the_answers_of_their_programs_and_known_words() -> None:
    generator = np.random.default_rng(0)
    found = set()
    for objects in (3, 4, 5, 6, 10):
        scene = draw_scene(generator, objects)
        questioner = Questioner(scene, generator, max_length=12)
        for _ in range(60):
            question = questioner.draw()
            assert answer(scene, question.program) == question.answer, " ".join(question.words)
            assert 3 <= len(question.program) <= 12
            assert 1 not in VOCABULARY.encode(question.words), "a word is unknown"
            found |= {step.operator for step in question.program}
            # each argument is a word of the question
            named = {VOCABULARY.arguments[number] for number in VOCABULARY.encode(question.words)}
            assert all(
                VOCABULARY.arguments[VOCABULARY.encode([step.argument])[0]] in named for step in question.program
            )
    assert len(found) == 13


def test_objects_do_not_overlap_and_differ_in_both_directions() -> None:
    generator = np.random.default_rng(1)
    sizes = list(RADII.values())
    for _ in range(5):
        scene = draw_scene(generator, 10)
        radii = [sizes[size] for size in scene.values[:, 2]]
        assert (scene.positions > 0).all()
        assert (scene.positions < (WIDTH, HEIGHT)).all()
        for first in range(10):
            for second in range(first):
                difference = np.abs(scene.positions[first] - scene.positions[second])
                assert (difference >= MARGIN).all()
                assert np.hypot(*difference) > radii[first] + radii[second]


def test_a_collection_depends_only_on_its_seed_and_crops_contain_their_object() -> None:
    one, same, other = (generate_collection(4, 3, (2, 5), 12, VOCABULARY, seed) for seed in (1, 1, 2))
    assert (one.images == same.images).all()
    assert (one.words == same.words).all()
    assert one.images.shape != other.images.shape or (one.images != other.images).any()
    batch = one.batch(np.arange(4), [one.questions_of(scene)[: scene + 1] for scene in range(4)])
    for scene in range(4):
        assert (batch.targets[scene] >= 0).sum() == min(scene + 1, 3)
        for number in range(int(one.objects[scene])):
            x, y = np.rint(one.positions[scene, number]).astype(int)
            middle = torch.from_numpy(one.images[scene, y, x])
            assert torch.equal(batch.crops[scene, number, CROP // 2, CROP // 2], middle)
        assert not batch.crops[scene, one.objects[scene] :].any()


def test_lessons_end_at_the_threshold() -> None:
    lessons = Lessons([[3, 3], [4, 5]], threshold=0.9)
    assert lessons.bounds == (3, 3)
    lessons.update(float("nan"))
    lessons.update(0.89)
    assert lessons.level == 0
    lessons.update(0.9)
    assert lessons.bounds == (4, 5)
    again = Lessons([[3, 3], [4, 5]], threshold=0.9)
    again.load_state_dict(lessons.state_dict())
    again.update(1.0)
    again.update(1.0)
    assert (again.level, again.bounds) == (2, None)
    for wrong in ([3], "abc", [[3, 0]], [[3, 3, 3]]):
        with pytest.raises(OptionError, match="lessons="):
            Lessons(wrong, threshold=0.9)  # type: ignore[arg-type]


CLEVR_PROGRAM = [
    {"function": "scene", "inputs": [], "value_inputs": []},
    {"function": "filter_color", "inputs": [0], "value_inputs": ["red"]},
    {"function": "unique", "inputs": [1], "value_inputs": []},
    {"function": "relate", "inputs": [2], "value_inputs": ["left"]},
    {"function": "unique", "inputs": [3], "value_inputs": []},
    {"function": "query_size", "inputs": [4], "value_inputs": []},
    {"function": "scene", "inputs": [], "value_inputs": []},
    {"function": "filter_shape", "inputs": [6], "value_inputs": ["cube"]},
    {"function": "unique", "inputs": [7], "value_inputs": []},
    {"function": "query_size", "inputs": [8], "value_inputs": []},
    {"function": "equal_size", "inputs": [5, 9], "value_inputs": []},
]


def test_programs_of_clevr_are_converted() -> None:
    program = convert_program([Node(**node) for node in CLEVR_PROGRAM], 12)
    assert nested(program) == "equal(size, relate(left, filter(red, scene)), filter(cube, scene))"
    counted = [*CLEVR_PROGRAM[:2], {"type": "count", "inputs": [1], "side_inputs": []}]
    assert nested(convert_program([Node(**node) for node in counted], 12)) == "count(filter(red, scene))"
    compared: list[dict[str, Any]] = [*counted, CLEVR_PROGRAM[0], {"function": "count", "inputs": [3]}]
    compared.append({"function": "greater_than", "inputs": [2, 4]})
    assert nested(convert_program([Node(**node) for node in compared], 12)) == "more(filter(red, scene), scene)"
    with pytest.raises(UserError, match="guess: unknown function"):
        convert_program([Node([], "guess")], 12)


def test_a_program_with_shared_nodes_takes_no_more_time_than_steps() -> None:
    shared = [Node([], "scene"), *(Node([number, number], "union") for number in range(1000)), Node([1000], "count")]
    assert convert_program(shared, 12) is None
    short = convert_program([*shared[:2], Node([1], "count")], 12)
    assert short is not None
    assert nested(short) == "count(union(scene, scene))"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ([], "the program is empty"),
        ([Node([0], "count")], "takes the result of one that is not before it"),
        ([Node([], "scene"), Node([-1], "count")], "takes the result of one that is not before it"),
        ([Node([], "scene")], "scene of the program must not be its end"),
        ([Node([], "count")], "count of the program takes 1 sets and has 0"),
        ([Node([], "scene"), Node([], "scene"), Node([0, 1], "count")], "the program leaves 1 sets that nothing takes"),
        ([Node([], "scene"), Node([0], "filter_color", value_inputs=["pink"])], "filter_color: unknown argument pink"),
    ],
)
def test_other_programs_are_refused(program: list[Node], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        convert_program(program, 12)


def test_clevr_is_read_from_its_folder(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / "images" / split).mkdir(parents=True)
        names = [f"CLEVR_{split}_{number:06}.png" for number in range(3)]
        for name in names:
            Image.new("RGB", (480, 320), (200, 10, 10)).save(tmp_path / "images" / split / name)
        objects = [{"pixel_coords": [100, 80, 9.0]}, {"pixel_coords": [300, 200, 9.0]}]
        scenes = {"scenes": [{"image_filename": name, "objects": objects} for name in names]}
        asked = {"question": "Does the red thing ...?", "answer": "yes", "program": CLEVR_PROGRAM}
        questions = {"questions": [{"image_filename": name, **asked} for name in names]}
        for kind, contents in (("scenes", scenes), ("questions", questions)):
            (tmp_path / kind).mkdir(exist_ok=True)
            (tmp_path / kind / f"CLEVR_{split}_{kind}.json").write_text(json.dumps(contents))
    splits, vocabulary = load_clevr(tmp_path, {"train": 2, "val": 1, "test": 3}, max_length=12)
    assert {name: len(own) for name, own in splits.items()} == {"train": 2, "val": 1, "test": 3}
    assert vocabulary.words[2:] == ("does", "red", "the", "thing")
    batch = splits["test"].batch(np.arange(1), [splits["test"].questions_of(0)])
    assert batch.crops[0, 0, CROP // 2, CROP // 2].tolist() == [200, 10, 10]
    assert batch.positions[0, 0].tolist() == pytest.approx([2 * 100 / 480 - 1, 2 * 80 / 320 - 1])
    whole, _ = load_clevr(tmp_path, {"train": None, "val": 1, "test": None}, max_length=12)
    assert {split: len(own) for split, own in whole.items()} == {split: len(own) for split, own in splits.items()}
    with pytest.raises(OptionError, match="train_scenes=3: CLEVR's training split has 3 scenes"):
        load_clevr(tmp_path, {"train": 3, "val": 1, "test": 3}, max_length=12)
    with pytest.raises(UserError, match="no question with a program of at most 3 steps"):
        load_clevr(tmp_path, {"train": 2, "val": 1, "test": 3}, max_length=3)


def test_words_name_arguments() -> None:
    words = split_words("How big is the shiny block that is left of the tiny grey ball?")
    numbers = VOCABULARY.encode(words)
    named = [name for number in numbers if (name := VOCABULARY.arguments[number])]
    assert words[0] == "how-big"
    assert len(named) == 6  # grey is not in the vocabulary of generated questions


def test_attributes_that_questions_name() -> None:
    generator = np.random.default_rng(0)
    others = {name for attribute in ("color", "size", "material") for name in (attribute, *ATTRIBUTES[attribute])}
    for _ in range(20):
        questioner = Questioner(draw_scene(generator, 5), generator, 12, ["shape"])
        for question in [questioner.draw() for _ in range(5)]:
            assert not others & {step.argument for step in question.program}
