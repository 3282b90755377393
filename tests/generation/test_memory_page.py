"""The page of an external memory."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.generation.memory_page import Answered, most_used, write_page, written_steps
from gyral.generation.sequences import answer_sequence
from gyral.models.memory_trace import Keys, MemoryTrace
from tests.helpers.pages import read_page
from tests.helpers.running import SMALL_ALGORITHM, build_task, invoke

HOSTILE = '<script>"&$1 \n'


def test_a_page_shows_answer_steps_and_slots(memory_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    outcome = invoke(f"run={memory_run}", "sequence=3 1 5", f"html={path}", entry="generate")
    answer, where = outcome.out.splitlines()
    assert (outcome.status, where) == (0, str(path)), outcome.err
    page = read_page(path)
    assert page.all("strong")[0].text == (answer or "(empty)")
    assert "(right: 3 1 5)" in page.all("header")[0].text
    assert [cell.text for cell in page.all("th")][:4] == ["step", "input", "output", "strength"]
    rows = [row.all("td") for row in page.all("tbody")[0].all("tr")]
    assert [row[0].text for row in rows] == list(map(str, range(len(rows))))
    assert "".join(row[1].text for row in rows) == "(315" + "?" * (len(rows) - 4)
    assert [bool(row[2].text) for row in rows] == [step >= 4 for step in range(len(rows))], "the answer"
    assert [bool(row[3].text) for row in rows] == [step < 4 for step in range(len(rows))], "strengths of writes"
    assert [slot.text for slot in rows[0][4].all("span")] == ["( (step 0): 100 %"]
    written = [circle for circle in page.all("circle") if "data-step" in circle.attributes]
    assert [circle.tooltip.split(" written")[0] for circle in written] == [
        "step 0: (",
        "step 1: 3",
        "step 2: 1",
        "step 3: 5",
    ]
    assert len(json.loads(page.all("polyline")[0].attributes["data-reads"] or "")) == len(rows)


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
    page = read_page(tmp_path / "page.html")
    assert len(page.all("script")) == 1, "that of the page"
    assert page.all("h1")[0].text == HOSTILE
    assert page.all("strong")[0].text == HOSTILE
    visible = HOSTILE.replace(" ", "␣").replace("\n", "�")
    assert [cell.text for cell in page.all("tbody")[0].all("td")][1:3] == [visible, visible]
    assert page.all("h2")[1].text == f"Weighting: {HOSTILE}"
    assert page.all("circle")[0].tooltip == f"step 0: {visible} written with strength 1.00"
    assert "nan" not in (tmp_path / "page.html").read_text().lower(), "places of keys that are not finite"


def test_a_memory_without_keys_shows_numbers_of_slots(tmp_path: Path) -> None:
    trace = MemoryTrace(np.ones(2, dtype=bool), {}, {"read 1": np.array([[0.7, 0.3, 0.0], [0.0, 0.004, 0.996]])}, None)
    write_page(tmp_path / "page.html", Answered("a", "b", "b", ["a", "?"], ["", "b"], trace))
    page = read_page(tmp_path / "page.html")
    assert "(which is right)" in page.all("header")[0].text
    assert not page.all("svg")
    assert [cell.text for cell in page.all("th")] == ["step", "input", "output", "read 1"]
    used = [[slot.text for slot in row.all("span")] for row in page.all("tbody")[0].all("tr")]
    assert used == [["slot 0: 70 %", "slot 1: 30 %"], ["slot 2: 100 %"]]
    opacities = base64.b64decode(page.all("canvas")[0].attributes["data-values"] or "")
    assert list(opacities) == [0, 255, round(255 * 0.3 / 0.996), 1, round(255 * 0.7 / 0.996), 0], (
        "slot 0 is at the bottom"
    )


def test_a_memory_that_forgets_contains_the_last_writes() -> None:
    keys = Keys(np.zeros((6, 2)), np.zeros((6, 2)), np.zeros(6), np.array([1, 2, 2, 3, 2, 3]))  # dropped 2 of 3
    writable = np.array([1, 1, 0, 1, 1, 1], dtype=bool)
    assert [steps.tolist() for steps in written_steps(keys, writable)] == [
        *([0], [0, 1], [0, 1], [0, 1, 3], [3, 4], [3, 4, 5])
    ]


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, ["a: 20 %"]), (3, ["c: 49 %", "b: 30 %", "a: 20 %"])])
def test_empty_slots_are_not_named(count: int, expected: list[str]) -> None:
    assert most_used(np.array([0.2, 0.3, 0.49, 0.01]), "abc"[:count]) == expected


def test_the_most_used_slot_is_always_shown() -> None:
    assert most_used(np.array([0.004, 0.008, 0.004])) == ["slot 1: 1 %"]
    assert most_used(np.zeros(3)) == []
