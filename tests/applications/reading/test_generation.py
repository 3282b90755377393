"""Answers to questions about documents, and the page that shows the documents."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from gyral.applications.reading.generation import answer_questions, explain, links_of
from gyral.applications.reading.models.reader import Reader
from gyral.applications.reading.page import Arc, Candidate, Shown, draw, write_page
from gyral.applications.reading.tasks.base import ReadingTask
from gyral.cells.mage_gru import MAGEGRUCell
from gyral.config import offers
from gyral.core.errors import OptionError
from tests.applications.reading.examples import QUESTIONS, QuestionData
from tests.helpers.pages import read_page

SHOWN = Shown(
    place="question 1 of 2",
    document=["ann", "<b>", "left", ".", "then", "ann", "sat", "."],
    question=["who", "sat", "?", "ann"],
    attention=np.array([0.05, 0, 0.05, 0, 0, 0.9, 0, 0]),
    arcs=[Arc(0, 5, 1), Arc(0, 2, 2), Arc(5, 11, 1)],
    is_read=True,
    candidates=[Candidate("ann", 0.75, True), Candidate("<b>", 0.25, False)],
    right="ann",
)


def build(edges: bool = True) -> ReadingTask:
    kept = QUESTIONS if edges else [question._replace(edges=()) for question in QUESTIONS]
    model = partial(Reader, partial(MAGEGRUCell, hidden_size=4, edge_size=2), embedding_size=3)
    return ReadingTask(
        model, QuestionData(questions=kept), name="questions", baseline=1.0, output_size=3, in_document=True
    )


def test_questions_of_the_test_split_are_answered_one_line_each(tmp_path: Path) -> None:
    task = build()
    generator, values = offers.choose([*offers.find_functions(task.generators).values()], {"questions": "2"}, "task")
    assert not offers.required(generator)
    lines = list(generator(task, **values))
    assert re.fullmatch(r"where is john \? (home|john) \(\d+ %, (right|wrong; right: home)\)\n", lines[0])
    assert lines[1].startswith("@placeholder is mary . ")
    page = tmp_path / "page.html"
    assert list(answer_questions(task, questions=9, html=str(page)))[-1] == f"{page}\n"
    assert len(read_page(page).all("section")) == 3
    with pytest.raises(OptionError, match="questions=0"):
        list(answer_questions(task, questions=0))


def test_a_page_shows_edges_or_else_chains(tmp_path: Path) -> None:
    task = build()
    shown = explain(task, task.batch_of("test", [0]), "a")
    assert shown.is_read
    assert shown.arcs == [Arc(0, 4, 1), Arc(4, 9, 1)]
    assert [candidate.name for candidate in shown.candidates if candidate.is_right] == ["home"]
    assert shown.attention.sum() == pytest.approx(1)
    without = build(edges=False)
    shown = explain(without, without.batch_of("test", [0]), "a")
    assert not shown.is_read
    assert shown.arcs == [Arc(0, 4, 1), Arc(4, 9, 1)]
    for each, dashed in ((shown, 2), (shown._replace(is_read=True), 0)):
        write_page(tmp_path / "page.html", [each], "a")
        page = read_page(tmp_path / "page.html")
        assert (len(page.all("path")), len(page.all("path", "dashed"))) == (2, dashed)


def test_words_of_a_mention_have_no_link_between_them() -> None:
    assert links_of(torch.tensor([1, 1, 0, 2, 1, 0, 1, 1])) == [Arc(1, 4, 1), Arc(4, 6, 1)]


def test_a_document_is_drawn_with_a_line_for_each_sentence(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [SHOWN], "Questions & answers")
    page = read_page(tmp_path / "page.html")
    words = page.all("text")
    assert [word.text for word in words] == [*SHOWN.document, *SHOWN.question]
    heights = [int(word.attributes["y"] or "") for word in words]
    assert len(set(heights)) == 3
    assert heights[:4] == [heights[0]] * 4
    assert heights[4] == heights[7] > heights[3]
    assert heights[8] > heights[7]
    kinds = [word.attributes["class"] for word in words if "class" in word.attributes]
    assert kinds == ["chain2", "chain2", "chain1", "chain1"]
    assert words[5].tooltip == "90.0 % of the attention"
    assert words[8].tooltip == "", "the question"
    assert len(page.all("path")) == 3
    assert len(page.all("rect")) == 1, "words with less than the share of uniform attention have no color"
    assert page.all("head")[0].tooltip == page.all("h1")[0].text == "Questions & answers"
    assert [cell.text for cell in page.all("td")] == ["ann", "75 %", "", "<b>", "25 %", ""]
    assert "(which is right)" in page.all("h2")[0].text


def test_long_lines_are_wrapped() -> None:
    long = SHOWN._replace(document=["word"] * 60, attention=np.full(60, 1 / 60), arcs=[Arc(0, 59, 1)])
    assert len({word.place.y for word in draw(long).words}) == 5  # 18 words a line, and the question
