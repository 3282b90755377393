"""Rows of the MAGE paper: averages and failed tasks that it prints follow from the accuracies of its tasks."""

import pytest

from gyral.config.groups import load_choice
from gyral.training import build
from tests.helpers.parameters import rows
from tests.helpers.running import compose_config

# bAbI 1k: average error in % and failed tasks, as printed below the errors of the 20 tasks
PUBLISHED = {
    "bi_gru": (23.7, 13),
    "bi_gru_one_hot": (24.9, 13),
    "bi_mage16": (10.3, 9),
    "ga": (24.1, 13),
    "ga_one_hot": (25.0, 13),
    "ga_dag_rnn": (21.8, 13),
    "ga_mage_shared": (9.8, 7),
    "ga_mage16": (8.7, 5),
}


def test_published_accuracies_add_up_to_the_published_average() -> None:
    assert set(rows("mage_paper/babi")) == set(PUBLISHED)
    for row, (average, failed) in PUBLISHED.items():
        paper = load_choice("experiment", f"mage_paper/babi/{row}").paper
        errors = [100 - accuracy for accuracy in paper.accuracy.values()]
        assert len(errors) == 20, row
        assert sum(errors) / 20 == pytest.approx(average, abs=0.06), row
        assert sum(error > 5.001 for error in errors) == failed, row


def test_rows_have_edges_as_in_the_paper() -> None:
    for row in ("ga_one_hot", "ga_dag_rnn", "ga_mage16"):
        task = build.build_task(compose_config(f"experiment=mage_paper/babi/{row}", "task.generated=true"))
        cell = task.model.layers[0].cells[0]
        assert hasattr(cell, "edge_types") == (row != "ga_one_hot")
