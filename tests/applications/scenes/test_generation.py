"""Answers to questions about a scene, as lines and as a page."""

from pathlib import Path

import pytest

from tests.helpers.pages import read_page
from tests.helpers.running import invoke

SMALL = (
    *("task=scenes", "task.train_scenes=10", "task.val_scenes=4", "task.test_scenes=3", "task.questions=4"),
    *("task.batch_size=2", "trainer.max_steps=1", "trainer.val_check_interval=1", "trainer.log_every_n_steps=1"),
    *("trainer.accelerator=cpu", "logger=csv", "optimizer=adam"),
)


def test_a_page_shows_the_programs_of_a_scene(tmp_path: Path) -> None:
    sizes = ("model.encoder.hidden_size=4", "model.decoder.hidden_size=4")
    outcome = invoke(*SMALL, "model=concept_learner", *sizes, f"hydra.run.dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    page = tmp_path / "scene.html"
    outcome = invoke(f"run={tmp_path / 'run'}", "scene=2", f"html={page}", entry="generate")
    assert outcome.status == 0, outcome.err
    lines = outcome.out.splitlines()
    assert len(lines) == 5
    assert all("? " in line and " · " in line and "scene" in line for line in lines[:4])
    sections = read_page(page).all("section")
    programs = [line.split(" · ")[1] for line in lines[:4]]
    assert [section.all("code")[0].text for section in sections] == programs
    for section, program in zip(sections, programs, strict=True):
        pictures = section.all("svg")
        assert len(pictures) == program.count("(") + program.count("scene") - 1, "of each step but the last"
        assert all(len(picture.all("circle")) >= 3 for picture in pictures), "an object at least"
    wrong = invoke(f"run={tmp_path / 'run'}", "scene=4", entry="generate")
    assert "scene=4: must be an integer from 1 to 3" in wrong.error


@pytest.mark.parametrize("model", ["question_only", "majority"])
def test_models_without_programs_answer_without_a_page(tmp_path: Path, model: str) -> None:
    assert invoke(*SMALL, f"model={model}", f"hydra.run.dir={tmp_path / 'run'}").status == 0
    outcome = invoke(f"run={tmp_path / 'run'}", "scene=1", entry="generate")
    assert len(outcome.out.splitlines()) == 4
    refused = invoke(f"run={tmp_path / 'run'}", "scene=1", f"html={tmp_path / 'page.html'}", entry="generate")
    assert "has no programs to show" in refused.error
