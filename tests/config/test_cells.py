"""The group `cell`: any cell in any place of a network, and a model with its cell in one file."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.gru import GRUCell
from gyral.cells.rum import RUMCell
from tests.helpers.running import CONF, compose_config


def test_options_of_an_inner_cell_are_set_by_their_keys() -> None:
    config = compose_config("model=fs_rum", "model.cell.slow.activation=tanh", "model.cell.fast.bias=false")
    cell = instantiate(config.model.cell)(3)
    assert isinstance(cell, FSRNNCell)
    assert (cell.slow.activation, cell.slow.eta, cell.slow.hidden_size) == ("tanh", 1.0, 100)
    assert not any(fast.layer.bias for fast in cell.fast)


@pytest.mark.parametrize("place", ["fast", "slow"])
def test_an_inner_cell_is_replaced_with_its_options(place: str) -> None:
    inner = compose_config("model=fs_rum", f"cell@model.cell.{place}=gru").model.cell[place]
    plain = compose_config("model=gru").model.cell
    assert inner == {name: value for name, value in plain.items() if name != "hidden_size"}


def test_the_cell_of_a_model_is_replaced() -> None:
    cell = compose_config("model=rum", "cell@model.cell=gru", "model.cell.hidden_size=7").model.cell
    assert cell == OmegaConf.merge(compose_config("model=gru").model.cell, {"hidden_size": 7})
    assert isinstance(instantiate(cell)(3), GRUCell)


def test_a_model_may_have_its_cell_in_its_own_file(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "defaults: [_base, _self_]\ncell:\n  _target_: gyral.cells.rum.RUMCell\n  eta: 2.0\n"
    )
    with initialize_config_dir(str(CONF), version_base="1.3"):
        overrides = ["+model=mine", f"hydra.searchpath=[file://{tmp_path}]", "model.cell.hidden_size=6"]
        config = compose("train", ["model=mine", *overrides[1:]])
    cell = instantiate(config.model.cell)(3)
    assert isinstance(cell, RUMCell)
    assert (cell.eta, cell.hidden_size) == (2.0, 6)
