"""Resolvers of the configuration."""

import pytest
from hydra.utils import get_class

from gyral.config.groups import choices
from gyral.config.resolvers import best_of, data_dir
from tests.helpers.found import at_least
from tests.helpers.running import compose_config, invoke, read_choice


def test_the_data_directory_is_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_DIR", "/somewhere/else")
    assert "data_dir: /somewhere/else" in invoke("--cfg", "job", "--resolve").out
    monkeypatch.delenv("DATA_DIR")
    assert "data_dir: data\n" in invoke("--cfg", "job", "--resolve").out
    monkeypatch.setenv("DATA_DIR", "")
    assert data_dir() == "data"


def test_the_best_value_of_a_metric_is_that_of_the_measures_of_all_tasks() -> None:
    assert (best_of("val/loss"), best_of("val/f1")) == ("min", "max")
    assert compose_config("task=recall", "task.monitor=val/loss").task.mode == "min"
    assert compose_config("task=copy", "task.monitor=val/accuracy").task.mode == "max"
    targets = {read_choice("task", name).get("_target_") for name in choices("task")} - {None}
    measures = [measure for target in at_least(25, targets) for measure in get_class(target).measures]
    for measure in at_least(60, {*measures}):
        assert best_of(f"val/{measure.name}") == ("max" if measure.higher_is_better else "min"), measure.name
