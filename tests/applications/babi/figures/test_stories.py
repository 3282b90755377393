"""The story that figures show."""

from pathlib import Path

import pytest

from gyral.applications.babi.figures import stories
from gyral.applications.babi.figures.answers import answers
from gyral.core.errors import OptionError
from gyral.report import draw_figure as draw
from gyral.runs.directory import Run


def test_figures_of_questions_require_a_run_with_questions(lstm: Path) -> None:
    for name in ("attention", "answers"):
        with pytest.raises(OptionError, match=rf"^figure={name}: .*must be one of target_kernel, "):
            draw(name, lstm)


def test_too_long_stories_are_refused(answering_by_sentence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "MAX_SENTENCES", 2)
    with pytest.raises(OptionError, match=r"every story has more than 2 sentences, which do not fit into a figure$"):
        answers(answering_by_sentence)
