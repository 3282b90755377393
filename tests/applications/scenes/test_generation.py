"""Answers to questions about a scene, as lines and as a page."""

from pathlib import Path

import pytest

from gyral.applications.scenes.generation import answer_scene
from gyral.core.errors import OptionError
from tests.applications.scenes.small import QUICK_TO_BUILD
from tests.helpers.pages import read_page
from tests.helpers.running import build_task, invoke


def test_a_page_shows_the_programs_of_a_scene(scenes_run: Path, tmp_path: Path) -> None:
    page = tmp_path / "scene.html"
    outcome = invoke(f"run={scenes_run}", "scene=2", f"html={page}", entry="generate")
    assert outcome.status == 0, outcome.err
    lines = outcome.out.splitlines()
    assert len(lines) == 6
    assert all("? " in line and " · " in line and "scene" in line for line in lines[:5])
    sections = read_page(page).all("section")
    programs = [line.split(" · ")[1] for line in lines[:5]]
    assert [section.all("code")[0].text for section in sections] == programs
    for section, program in zip(sections, programs, strict=True):
        pictures = section.all("svg")
        assert len(pictures) == program.count("(") + program.count("scene") - 1, "of each step but the last"
        assert all(len(picture.all("circle")) >= 3 for picture in pictures), "an object at least"


@pytest.mark.parametrize("model", ["question_only", "majority"])
def test_models_without_programs_answer_without_a_page(tmp_path: Path, model: str) -> None:
    task = build_task("task=scenes", f"model={model}", **QUICK_TO_BUILD, questions=4)
    lines = list(answer_scene(task, scene=1))
    assert len(lines) == 4
    assert all("? " in line and " · " not in line for line in lines)
    with pytest.raises(OptionError, match="has no programs to show"):
        list(answer_scene(task, scene=1, html=str(tmp_path / "page.html")))
    with pytest.raises(OptionError, match=r"^scene=5: must be an integer from 1 to 4$"):
        list(answer_scene(task, scene=5))
