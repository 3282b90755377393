"""Text of others is shown as text: control characters in terminals, markup in Markdown."""

import json
import logging
import re

import pytest
from markdown_it import MarkdownIt

from gyral.core.errors import hide_passwords, printable
from gyral.core.escaping import escape_markdown
from gyral.core.files import to_json
from gyral.core.progress import ConsoleHandler
from tests.helpers.loops import for_each


@for_each(
    "given",
    [
        ("naïve – 猫\t1\n\N{NO-BREAK SPACE}\N{IDEOGRAPHIC SPACE}2", None),
        ("\x1b[2J\x07\r\x7f\x9b31m", r"\x1b[2J\x07\r\x7f\x9b31m"),
        ("a\u202eb\u2028c\udcff\0", r"a\u202eb\u2028c\udcff\x00"),
        ("\u061c\u200e\u200f\u2066\u2069\ufeff", r"\u061c\u200e\u200f\u2066\u2069\ufeff"),
        ("می\u200cخواهم क्\u200dष 👩\u200d🔬 العربية עברית ไทย", None),
    ],
)
def test_control_characters_become_escapes(given: tuple[str, str | None]) -> None:
    text, shown = given
    assert printable(text) == (text if shown is None else shown)


def test_messages_of_the_log_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleHandler().emit(logging.makeLogRecord({"msg": "left out: %s", "args": ("\x1b[31ma",)}))
    assert capsys.readouterr().err == "left out: \\x1b[31ma\n"


@for_each("text", ["a\x1b[31mb", "a\x9b\x85", "\u202e\u2066\U000e0041", "naïve 猫\u200c\t\n"])
def test_json_has_escapes_for_control_characters_and_the_same_value(text: str) -> None:
    written = to_json({text: [text]}, indent=2)
    assert json.loads(written) == {text: [text]}
    assert printable(written) == written
    assert "\\u200c" not in written


@for_each("text", ["see https://x.y", "HTTP://x.y/z", "www.x.y", "a www.x.y"])
def test_addresses_have_not_the_form_of_which_github_makes_links(text: str) -> None:
    escaped = escape_markdown(text)
    assert not re.search(r"(?i)\w://|\bwww\.", escaped)
    assert MarkdownIt("commonmark").renderInline(escaped) == text


@for_each(
    "text", ["**a** <b>", "# a", "- a", "1. a", "[a](b)", "`a` | b", "&lt;", "---", "a\n\n# b", "    a", "\ta", "="]
)
def test_markup_becomes_text(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(escape_markdown(text))
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for token in tokens for child in token.children or ()} <= {"text", "text_special"}


@for_each(
    "given",
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("a=mysql+pymysql://me:se%40cr@et@host:1/db b", "a=mysql+pymysql://me:***@host:1/db b"),
        ("postgresql://me:se/cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://host/db?user=me&password=secret&a=b", "postgresql://host/db?user=me&password=***&a=b"),
        ("sqlite:////home/a:b@c/study.db", "sqlite:////home/a:b@c/study.db"),
        ("postgresql://me@host:5432/db, http://host:80/path", "postgresql://me@host:5432/db, http://host:80/path"),
    ],
)
def test_passwords_of_urls_are_hidden(given: tuple[str, str]) -> None:
    text, shown = given
    assert hide_passwords(text) == shown
