"""The page of summaries: content, colors, and escaped HTML."""

import base64
from pathlib import Path

import numpy as np
import pytest

from gyral.applications.summarization.page import Shown, measure, strengths, write_page
from tests.helpers.pages import Element, read_page

SHOWN = Shown(
    place="a.jsonl:1",
    article=["the", "<b>", "cat", "sat"],
    reference=[["the", "cat", "sat"]],
    summary=[["the", "cat"], ["&", "cat"]],
    attention=np.array([[0.9, 0.1, 0, 0], [0.1, 0, 0.8, 0.1], [0, 0, 0.2, 0.8], [0.0, 0.1, 0.5, 0.4]]),
    copied=np.array([1.0, 0.5, 0.0, 0.25]),
)


def colored(page: Element, tag: str, kind: str) -> list[tuple[str | None, str]]:
    """Return strength and word of each word in the part of a class."""
    [part] = page.all(tag, kind)
    return [(span.attributes["style"], span.text) for span in part.all("span")]


def test_words_are_coloured_by_attention_and_by_what_was_copied(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [SHOWN], "Summaries")
    page = read_page(tmp_path / "page.html")
    # the means over steps are 0.25, 0.05, 0.375, 0.325, and uniform attention is 0.25
    assert colored(page, "p", "article") == [
        *(("--a:0.00", "the"), ("--a:0.00", "<b>"), ("--a:0.29", "cat"), ("--a:0.19", "sat"))
    ]
    assert colored(page, "div", "summary") == [
        *(("--a:1.00", "the"), ("--a:0.50", "cat"), ("--a:0.00", "&"), ("--a:0.25", "cat"))
    ]
    assert page.all("div", "summary")[0].text.split() == ["the", "cat", "&", "cat"], "with spaces between words"
    [section] = page.all("section")
    numbers = np.frombuffer(base64.b64decode(section.attributes["data-steps"] or ""), dtype=np.uint8).reshape(4, 4)
    assert numbers.tolist() == np.round(255 * strengths(SHOWN.attention)).astype(int).tolist()


def test_a_summary_is_measured() -> None:
    facts = measure(SHOWN)
    assert facts["ROUGE-1"] == pytest.approx(100 * 2 * 2 / (3 + 3))  # "the" and one "cat"; signs do not count
    assert facts["copied"] == pytest.approx(43.75)
    assert facts["repeated 3-grams"] == 0
    assert facts["novel 2-grams"] == 100  # "<b>" stands between
    assert "ROUGE-1" not in measure(SHOWN._replace(reference=[]))


def test_empty_texts_are_shown(tmp_path: Path) -> None:
    empty = SHOWN._replace(reference=[], summary=[], attention=np.zeros((0, 4)), copied=np.zeros(0))
    write_page(tmp_path / "page.html", [empty], "<Summaries>")
    page = read_page(tmp_path / "page.html")
    assert page.all("div", "summary")[0].text.strip() == "(no word)"
    assert [heading.text for heading in page.all("h3")] == ["Article (the part that was read)", "Summary"]
    assert page.all("head")[0].tooltip == "<Summaries>"
    write_page(tmp_path / "page.html", [], "none")
    assert not read_page(tmp_path / "page.html").all("section")


def test_uniform_attention_has_no_color_and_full_attention_the_strongest() -> None:
    attention = np.array([[0.25, 0.25, 0.25, 0.25], [0, 0, 1, 0], [0.5, 0.5, 0, 0]])
    assert strengths(attention) == pytest.approx(np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0.5, 0.5, 0, 0]]))
    assert strengths(np.ones((2, 1))).tolist() == [[1], [1]]
