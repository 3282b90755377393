"""Answers to sequences and programs: from the command line, and of models whose answers are known."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from gyral.cells.inputs import MaskedInputs
from gyral.core.errors import OptionError
from gyral.generation.sequences import answer_sequence
from gyral.runs.directory import load_run
from gyral.tasks.algorithm import AlgorithmTask
from gyral.training import build
from tests.helpers.running import SMALL_PROGRAMS, Outcome, build_task, invoke


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "programs"
    assert invoke(*SMALL_PROGRAMS, "model=gru", "trainer.max_steps=4", f"hydra.run.dir={directory}").status == 0
    return directory


def generate(run: Path, **options: str) -> Outcome:
    return invoke(f"run={run}", *(f"{name}={value}" for name, value in options.items()), entry="generate")


def test_a_program_is_answered_in_one_line(run: Path) -> None:
    outcome = generate(run, sequence="f=3184;print((f-29))")
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("\n") == 1
    assert "right answer: 3155\n" in outcome.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sequence": "print((14*"}, "sequence=print((14*: must end with print(…)"),
        ({"sequence": "f=3184,print(f)"}, "sequence=f=3184,print(f): ',' is not a symbol; the symbols of programs"),
        ({"sequence": ""}, "sequence=: must end with print(…)"),
        (
            {"sequence": "print(1)", "html": "page.html"},
            "html=page.html: shows an external memory, which the model of this run does not have",
        ),
    ],
)
def test_bad_values_are_errors_of_one_line(run: Path, options: dict[str, str], said: str) -> None:
    task, _ = build.load_trained(load_run(run), "last")
    with pytest.raises(OptionError) as raised:
        list(answer_sequence(task, **options))
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sequence": ""}, "sequence=: must end with print(…)"),
        ({"sequence": "print(1)", "length": "3"}, "length=3: run="),
        pytest.param({"prompt": "print(1)"}, "prompt=print(1): run=", marks=pytest.mark.slow),
    ],
)
def test_the_command_refuses_bad_values_in_one_line(run: Path, options: dict[str, str], said: str) -> None:
    assert generate(run, **options).error.startswith(said)


def algorithm(answer: Any, **options: Any) -> AlgorithmTask:
    """Return a copying task whose model answers with given symbols; after the last one, it repeats it."""
    task = build_task("task=algorithm", "model=gru", "model.cell.hidden_size=4", train_lengths=[2, 4], **options)

    class Model(torch.nn.Module):
        def forward(self, inputs: MaskedInputs, lengths: torch.Tensor) -> tuple[Any, None]:
            step = (torch.arange(inputs.values.shape[1]) - inputs.write.sum()).clamp(0, len(answer) - 1)
            return 50.0 * F.one_hot(torch.tensor(answer)[step], 128)[None], None

    task.model = Model()
    return task


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ([7, 8, 127], "7 8"),
        ([7, 8, 9, 10, 127], "7 8 9 10"),  # longer than the correct answer
        ([127], ""),
        ([7], "7 7 7 7 7 7 7 7 7 7 7 7 7 7 …"),
    ],
)
def test_an_answer_ends_where_the_model_ends_it(answer: list[int], shown: str) -> None:
    task = algorithm(answer)
    assert list(answer_sequence(task, sequence="7 8")) == [f"{shown}\n"]
    found = task.answer("7 8")
    steps = found.batch.inputs[0].tolist()
    assert steps == [125, 7, 8, *[126] * len(found.given)]
    assert found.right == [7, 8, 127]
    assert found.batch.write[0].tolist() == [True] * 3 + [False] * len(found.given)


@pytest.mark.parametrize(("sequence", "said"), [("1 2 3 4 5 6 7 8", None), ("1 2 3 4 5 6 7 8 9", "has 10 symbols")])
def test_a_sequence_longer_than_the_memory(sequence: str, said: str | None) -> None:
    options = {"train_lengths": [2, 4], "test_factors": [1, 2]}
    task = build_task(
        "task=algorithm", "model=lantm", "model.cell.capacity=9", "model.cell.hidden_size=4", **options
    ).eval()
    if said is None:
        assert len(list(answer_sequence(task, sequence=sequence))) == 1
    else:
        with pytest.raises(OptionError) as raised:
            list(answer_sequence(task, sequence=sequence))
        assert str(raised.value) == f"sequence={sequence}: {said}, and the memory of the model holds 9"


def test_sequences_of_a_file_have_predictions(run: Path, tmp_path: Path) -> None:
    (tmp_path / "programs.txt").write_text("f=3184;print((f-29))\n\nprint(7)\n")
    outcome = invoke(f"run={run}", f"data={tmp_path}/programs.txt", entry="predict")
    assert outcome.status == 0, outcome.err
    head, first, second = (line.split(",") for line in outcome.out.splitlines())
    assert head == ["row", "sequence", "prediction", "target"]
    assert [first[1], first[3], second[0], second[3]] == ["f=3184;print((f-29))", "3155", "1", "7"]
    (tmp_path / "programs.txt").write_text("print(7)\nprint(\n")
    error = invoke(f"run={run}", f"data={tmp_path}/programs.txt", entry="predict").error
    assert error.startswith(f"data={tmp_path}/programs.txt: line 2: print(: ")
