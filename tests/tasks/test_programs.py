"""Programs as batches: layout, categories, the curriculum, and written programs."""

from typing import Any

import pytest
import torch

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.programs.drawing import KINDS, SYMBOLS
from gyral.data.programs.evaluation import evaluate_program
from gyral.tasks.programs import ProgramData, ProgramsTask, answer_text
from tests.helpers.running import build_task

# for the contract of tasks
ALTERNATIVES = {"kinds": [["loop"], "identity"]}
# Of small_runs.py in tests/faults. A digit is added after every second validation, because no answer is correct.
RUN = ("model=lstm", "task.curriculum=combined", "task.patience=1", "trainer.val_check_interval=4")


def effects(task: ProgramsTask) -> list[Any]:
    """Return what options change beside the data and the model, for the contract of tasks."""
    return [vars(task.data.in_training)]


def data(**options: Any) -> ProgramData:
    sizes = {"batch_size": 60, "val_batches": 1, "test_batches": 2, "data_seed": 3}
    task = {"kinds": None, "digits": [2, 4], "curriculum": "mixed", "patience": 1}
    return ProgramData(**{**task, **sizes, **options})


def built(**options: Any) -> ProgramsTask:
    return build_task("task=programs", "model=gru", "model.cell.hidden_size=4", **options)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_layout_and_categories(split: str) -> None:
    made = data()
    batch = next(iter(made.loader(split)))
    found = set()
    for row in range(60):
        length, written = int(batch.lengths[row]), int(batch.write[row].sum())
        program = "".join(SYMBOLS[token] for token in batch.inputs[row, :written].tolist())
        assert batch.inputs[row, written:].unique().tolist() == [len(SYMBOLS)]
        answer = "".join("0123456789-."[each] for each in batch.targets[row, written:length].tolist())
        value = evaluate_program(program)
        assert answer == answer_text(value)
        assert batch.targets[row, :written].unique().tolist() == [IGNORED]
        assert batch.targets[row, length:].eq(IGNORED).all()
        names = {name for name, is_in in zip(made.categories, batch.categories[row, 1:].tolist(), strict=True) if is_in}
        assert len(names) == 2
        found |= names
    assert found == {*KINDS, "2_digits", "3_digits", "4_digits"}
    assert batch.categories[:, 0].all()


def test_answers_are_reversed_with_the_sign_last() -> None:
    assert answer_text(-67032) == "23076-."
    assert answer_text(4103) == "3014."
    assert answer_text(0) == "0."


@pytest.mark.parametrize(("curriculum", "levels"), [("none", {4}), ("naive", {2}), ("mixed", {2, 3, 4})])
def test_training_has_the_digits_of_the_curriculum_and_validation_all(curriculum: str, levels: set[int]) -> None:
    made = data(curriculum=curriculum, kinds="identity")

    def digits(split: str) -> set[int]:
        batch = next(iter(made.loader(split)))
        return set((batch.lengths - batch.write.sum(dim=1) - 1).tolist())

    assert digits("train") == levels
    assert digits("val") == {2, 3, 4}


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_a_digit_is_added_when_validations_do_not_improve(mode: str, sign: int) -> None:
    task = built(curriculum="naive", patience=2, mode=mode, monitor="val/loss")
    levels = []
    for value in (0.5, 0.4, 0.5, 0.4, 0.6, 0.5, 0.5, 0.1, 0.1, 0.1):
        task.step_validation(torch.tensor(sign * value))
        levels.append(task.data.in_training.level)
    # two in a row do not exceed the best: one digit more, and the count of scores resets
    assert levels == [2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    checkpoint: dict[str, Any] = {}
    task.on_save_checkpoint(checkpoint)
    resumed = built(curriculum="naive", patience=2)
    resumed.on_load_checkpoint(checkpoint)
    assert vars(resumed.data.in_training) == vars(task.data.in_training)
    assert resumed.data_metrics()["curriculum_digits"] == 4


def test_memory_holds_the_longest_program() -> None:
    reserved: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gyral.tasks.base.SequenceTask.reserve", lambda task, writes: reserved.append(writes))
        built()
        built(kinds=["identity"])
    assert reserved == [len("a=9999;for x in range(16):a+=9999;print(a)"), len("print(9999)")]


def test_a_written_program_becomes_a_batch() -> None:
    task = built()
    program = "b=1398;for x in range(10):b-=6843;print(b)"
    batch = task.encode(program)
    assert "".join(task.inputs[token] for token in batch.inputs[0][batch.write[0]].tolist()) == program
    answer = batch.targets[0][batch.targets[0] != IGNORED].tolist()
    assert task.decode(answer) == "-67032"
    assert task.decode(answer[:3]) == "…032"
    assert task.render(batch, batch.targets).splitlines()[1] == "target      23076-."


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print((14*", "must end with print(…)"),
        ("print((14*))", "'(14*)' is not an expression"),
        ("print(a)", "'a' has no value"),
        ("q=1;print(q)", f"'q' is not a symbol; the symbols of programs are {SYMBOLS.strip()} and the space"),
    ],
)
def test_invalid_programs_are_refused(program: str, said: str) -> None:
    with pytest.raises(OptionError) as raised:
        built().encode(program)
    assert str(raised.value) == f"sequence={program}: {said}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kinds": ["loops"]}, "kinds=loops: did you mean loop? must be one of "),
        ({"kinds": []}, "kinds=[]: must be distinct values from arithmetic, identity, "),
        ({"kinds": ["loop", "loop"]}, "kinds=['loop', 'loop']: must be distinct values from "),
        ({"digits": [4, 2]}, "digits=[4, 2]: must be 2 integers in increasing order ≥ 1"),
        ({"digits": [2, 13]}, "digits=13: must be an integer from 1 to 12"),
        ({"curriculum": "hard"}, "curriculum=hard: must be one of none, naive, mixed, combined"),
        ({"patience": 0}, "patience=0: must be an integer ≥ 1"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(("curriculum", "allowed"), [("mixed", True), ("none", True), ("naive", False)])
def test_a_curriculum_that_grows_cannot_be_drawn_ahead(curriculum: str, allowed: bool) -> None:
    overrides = ("task=programs", "model=lstm", f"task.curriculum={curriculum}", "+task.prefetch=2")
    if allowed:
        assert build_task(*overrides).data.prefetch == 2
    else:
        with pytest.raises(OptionError, match="prefetch=2: must be 0: the batches of this task depend on"):
            build_task(*overrides)
