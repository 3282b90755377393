"""The page of summaries: what is shown, in which colours, and that nothing in a text is taken for HTML."""

import base64
import re
from pathlib import Path

import numpy as np
import pytest

from gyral.applications.summarization.page import Shown, measure, strengths, write_page

SHOWN = Shown(
    place="a.jsonl:1",
    article=["the", "<b>", "cat", "sat"],
    reference=[["the", "cat", "sat"]],
    summary=[["the", "cat"], ["&", "cat"]],
    attention=np.array([[0.9, 0.1, 0, 0], [0.1, 0, 0.8, 0.1], [0, 0, 0.2, 0.8], [0.0, 0.1, 0.5, 0.4]]),
    copied=np.array([1.0, 0.5, 0.0, 0.25]),
)


def spans(text: str, part: str) -> list[tuple[str, str]]:
    """Return strength and word of each word in the parts of a class."""
    section = re.search(rf'class="{part}">(.*?)</(?:p|div)>\s*(?:</div>|<h3>|$)', text, re.DOTALL)
    assert section is not None
    return re.findall(r'<span style="--a:([\d.]+)"[^>]*>(.*?)</span>', section[1])


def test_words_are_coloured_by_attention_and_by_what_was_copied(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [SHOWN], "Summaries")
    text = (tmp_path / "page.html").read_text()
    # the means over steps are 0.25, 0.05, 0.375, 0.325, and uniform attention is 0.25
    assert spans(text, "article") == [("0.00", "the"), ("0.00", "&lt;b&gt;"), ("0.29", "cat"), ("0.19", "sat")]
    assert spans(text, "summary") == [("1.00", "the"), ("0.50", "cat"), ("0.00", "&amp;"), ("0.25", "cat")]
    [steps] = re.findall(r'data-steps="(.*?)"', text)
    numbers = np.frombuffer(base64.b64decode(steps), dtype=np.uint8).reshape(4, 4)
    assert numbers.tolist() == np.round(255 * strengths(SHOWN.attention)).astype(int).tolist()


def test_a_summary_is_measured() -> None:
    facts = measure(SHOWN)
    assert facts["ROUGE-1"] == pytest.approx(100 * 2 * 2 / (3 + 3))  # "the" and one "cat"; signs do not count
    assert facts["copied"] == pytest.approx(43.75)
    assert facts["repeated 3-grams"] == 0
    assert facts["novel 2-grams"] == 100  # "<b>" stands between
    assert "ROUGE-1" not in measure(SHOWN._replace(reference=[]))


def test_what_is_empty_is_shown(tmp_path: Path) -> None:
    empty = SHOWN._replace(reference=[], summary=[], attention=np.zeros((0, 4)), copied=np.zeros(0))
    write_page(tmp_path / "page.html", [empty], "<Summaries>")
    text = (tmp_path / "page.html").read_text()
    assert "(no word)" in text
    assert "Reference" not in text
    assert "<title>&lt;Summaries&gt;</title>" in text
    write_page(tmp_path / "page.html", [], "none")
    assert "<section" not in (tmp_path / "page.html").read_text()


def test_uniform_attention_has_no_color_and_all_of_it_the_full_one() -> None:
    attention = np.array([[0.25, 0.25, 0.25, 0.25], [0, 0, 1, 0], [0.5, 0.5, 0, 0]])
    assert strengths(attention) == pytest.approx(np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0.5, 0.5, 0, 0]]))
    assert strengths(np.ones((2, 1))).tolist() == [[1], [1]]
