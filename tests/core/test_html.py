"""Pages from templates: hostile texts, names that are not UTF-8, memory, failures."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gyral.core.html import write_html
from tests.helpers.pages import read_page

TEMPLATE = """\
{% extends "base.html" %}
{% block body %}
<h1>{{ title }}</h1>
{% for text in texts %}<p title="{{ text }}">{{ text }}</p>{% endfor %}
{% endblock %}
"""
HOSTILE = (
    "</title><script>alert(1)</script>",
    "\"' onload='alert(1)",
    "{{ 7 * 7 }}",
    "{% include 'x' %}",
    "<!--",
    "&lt;",
)


@pytest.fixture
def module(tmp_path: Path) -> str:
    """The name of a module with a template beside it."""
    (tmp_path / "own.html").write_text(TEMPLATE)
    return str(tmp_path / "own.py")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_becomes_markup_or_a_template(hostile: str, module: str, tmp_path: Path) -> None:
    write_html(tmp_path / "page.html", module, title=hostile, texts=[hostile])
    page = read_page(tmp_path / "page.html")
    assert page.all("head")[0].tooltip == page.all("h1")[0].text == hostile
    [paragraph] = page.all("p")
    assert paragraph.text == paragraph.attributes["title"] == hostile
    assert not page.all("script")


def test_a_name_that_is_not_utf_8_has_a_sign_in_its_place(module: str, tmp_path: Path) -> None:
    write_html(tmp_path / "page.html", module, title="a\udcff", texts=[])
    assert read_page(tmp_path / "page.html").all("h1")[0].text == "a?"


def test_a_page_is_written_while_its_values_are_read(module: str, tmp_path: Path) -> None:
    texts = ("word" * 250 for _ in range(5_000))  # 10 MB
    write_html(tmp_path / "warm.html", module, title="a", texts=[])
    tracemalloc.start()
    write_html(tmp_path / "page.html", module, title="a", texts=texts)
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()
    assert (tmp_path / "page.html").stat().st_size > 1e7


def test_a_failure_leaves_the_old_page(module: str, tmp_path: Path) -> None:
    def texts() -> Iterator[str]:
        yield "new"
        raise ValueError("the text ends")

    (tmp_path / "page.html").write_text("old")
    with pytest.raises(ValueError, match="the text ends"):
        write_html(tmp_path / "page.html", module, title="a", texts=texts())
    with pytest.raises(Exception, match="'texts' is undefined"):
        write_html(tmp_path / "page.html", module, title="a")
    assert (tmp_path / "page.html").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"own.html", "page.html"}
