"""The page of an external memory."""

import html
import re
from pathlib import Path

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.generation.memory_page import Answered, most_used, write_page, written_steps
from gyral.generation.memory_trace import Keys, MemoryTrace
from gyral.generation.sequences import answer_sequence
from tests.helpers.running import SMALL_ALGORITHM, build_task, invoke

HOSTILE = '<script>"&$1 \n'


def test_a_page_shows_answer_steps_and_slots(memory_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    outcome = invoke(f"run={memory_run}", "sequence=3 1 5", f"html={path}", entry="generate")
    answer, where = outcome.out.splitlines()
    assert (outcome.status, where) == (0, str(path)), outcome.err
    page = path.read_text()
    assert f"<strong>{html.escape(answer or '(empty)')}</strong>" in page
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)[1:]]
    assert [row[0] for row in rows] == list(map(str, range(len(rows))))
    assert "".join(row[1] for row in rows) == "(315" + "?" * (len(rows) - 4)
    assert [bool(row[2]) for row in rows] == [step >= 4 for step in range(len(rows))], "the answer"
    assert [bool(row[3]) for row in rows] == [step < 4 for step in range(len(rows))], "the strength where it is written"
    assert "(right: 3 1 5)" in page
    assert rows[0][4] == "<span>( (step 0): 100 %</span>"
    assert page.count("<circle data-step") == 4
    assert "http" not in page, "the page needs nothing else"


def test_a_model_without_external_memory_has_no_page(tmp_path: Path) -> None:
    task = build_task(*SMALL_ALGORITHM, "model=lstm")
    with pytest.raises(
        OptionError, match=r"page\.html: shows an external memory, which the model of this run does not"
    ):
        next(answer_sequence(task, sequence="3 1 5", html=str(tmp_path / "page.html")))


def test_texts_are_escaped(tmp_path: Path) -> None:
    weights = {HOSTILE: np.eye(2)}
    keys = Keys(np.zeros((2, 2)), np.full((2, 2), np.nan), np.ones(2), np.array([1, 2]))
    trace = MemoryTrace(np.ones(2, dtype=bool), {}, weights, keys)
    write_page(tmp_path / "page.html", Answered(HOSTILE, HOSTILE, HOSTILE + "x", [HOSTILE] * 2, [HOSTILE, ""], trace))
    page = (tmp_path / "page.html").read_text()
    assert page.count("<script>") == 1, "that of the page"
    assert html.escape(HOSTILE.replace(" ", "␣").replace("\n", "�")) in page
    assert "NaN" not in page
    assert "nan" not in page


def test_a_memory_without_keys_shows_numbers_of_slots(tmp_path: Path) -> None:
    trace = MemoryTrace(np.ones(2, dtype=bool), {}, {"read 1": np.array([[0.7, 0.3, 0.0], [0.0, 0.004, 0.996]])}, None)
    write_page(tmp_path / "page.html", Answered("a", "b", "b", ["a", "?"], ["", "b"], trace))
    page = (tmp_path / "page.html").read_text()
    assert "(which is right)" in page
    assert "<svg" not in page
    assert "strength</th>" not in page
    assert "<td><span>slot 0: 70 %</span> <span>slot 1: 30 %</span></td>" in page
    assert "<td><span>slot 2: 100 %</span></td>" in page


def test_slots_of_a_memory_that_forgets_are_the_last_writes() -> None:
    keys = Keys(np.zeros((6, 2)), np.zeros((6, 2)), np.zeros(6), np.array([1, 2, 2, 3, 2, 3]))  # dropped 2 of 3
    writable = np.array([1, 1, 0, 1, 1, 1], dtype=bool)
    assert [steps.tolist() for steps in written_steps(keys, writable)] == [
        *([0], [0, 1], [0, 1], [0, 1, 3], [3, 4], [3, 4, 5])
    ]


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, ["a: 20 %"]), (3, ["c: 49 %", "b: 30 %", "a: 20 %"])])
def test_empty_slots_are_not_named(count: int, expected: list[str]) -> None:
    assert most_used(np.array([0.2, 0.3, 0.49, 0.01]), "abc"[:count]) == expected


def test_the_most_used_slot_is_shown_however_little_it_is_used() -> None:
    assert most_used(np.array([0.004, 0.008, 0.004])) == ["slot 1: 1 %"]
    assert most_used(np.zeros(3)) == []
