"""Reports of evaluations: what data brings is text, in the terminal and in Markdown."""

import pytest
from markdown_it import MarkdownIt

from gyral.runs.evaluation_report import EvaluationReport

HOSTILE = "\x1b[31m**a** | <b>\n\n# c"
REPORT = EvaluationReport(HOSTILE, (HOSTILE, "score"), [(HOSTILE, "1.0"), ()], [HOSTILE], {"a": 1.0})


def test_the_terminal_gets_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    REPORT.show()
    assert "\x1b" not in (out := capsys.readouterr().out)
    assert r"\x1b[31m**a** | <b>" in out


def test_markdown_has_no_other_markup() -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(REPORT.markdown())
    assert "\x1b" not in REPORT.markdown()
    opened = [token.type for token in tokens if token.type.endswith("_open")]
    cells = ["tr_open", "th_open", "th_open", "tbody_open", "tr_open", "td_open", "td_open"]
    assert opened == ["heading_open", "table_open", "thead_open", *cells, "paragraph_open"]
    inside = {child.type for token in tokens for child in token.children or ()}
    assert inside <= {"text", "text_special"}
