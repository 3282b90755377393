"""Cells of a network of two sides, by the groups of conf/."""

import pytest
from omegaconf import OmegaConf

from gyral.config.groups import choices
from tests.helpers.running import compose_config


@pytest.mark.named("external", "fs_eurnn", "fs_rum", "goru", "ntm", "rnn", "rum", "urnn")
@pytest.mark.parametrize("cell", choices("cell"))
def test_each_side_of_a_network_of_two_takes_any_models_cell_with_its_options(cell: str) -> None:
    sides = compose_config("model=lead", f"cell@model.decoder={cell}").model
    assert sides.decoder == OmegaConf.merge(compose_config(f"model={cell}").model.cell, {"hidden_size": 256})
    assert sides.encoder._target_ == "gyral.cells.lstm.LSTMCell"
