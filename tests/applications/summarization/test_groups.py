"""Cells of a network of two sides, by the groups of conf/."""

import pytest

from gyral.config.groups import choices
from tests.helpers.found import at_least
from tests.helpers.running import compose_config


@pytest.mark.named("fs_rum", "ntm")
@pytest.mark.parametrize("cell", at_least(45, choices("cell")))
def test_each_side_of_a_network_of_two_takes_any_models_cell_with_its_options(cell: str) -> None:
    sides = compose_config("model=lead", f"cell@model.decoder={cell}").model
    assert sides.decoder == {**compose_config(f"model={cell}").model.cell, "hidden_size": 256}
    assert sides.encoder._target_ == "gyral.cells.lstm.LSTMCell"
