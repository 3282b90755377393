"""Options of constructors: the defaults of a class are those of the command line, and of the runs that are saved."""

import inspect
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from gyral.config.groups import choices
from gyral.config.signatures import constructor_defaults
from tests.helpers.running import compose_config

CELL = """
from gyral.cells.gru import GRUCell

class GatedCell(GRUCell):
    def __init__(self, input_size, hidden_size, *, zoneout=0.0, made=dict(), sizes=(1, 2)):
        super().__init__(input_size, hidden_size, zoneout=zoneout)

class OtherCell(GatedCell):
    pass
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a module of cells and a cell."""
    (tmp_path / "conf" / "cell").mkdir(parents=True)
    (tmp_path / "conf" / "cell" / "gated.yaml").write_text("# Own\n_target_: own_gated.OtherCell\n")
    (tmp_path / "own_gated.py").write_text(CELL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("cell", choices("cell"))
def test_a_cell_has_the_options_of_its_constructor_with_their_defaults(cell: str) -> None:
    target = compose_config(f"model={cell}").model.cell._target_
    parameters = inspect.signature(get_class(target)).parameters.values()
    expected = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
    assert constructor_defaults(target) == expected


def test_a_class_without_a_constructor_has_that_of_its_base(project: Path) -> None:
    assert constructor_defaults("own_gated.OtherCell") == {"zoneout": 0.0, "sizes": [1, 2]}
    cell = compose_config("model=gated", "model.cell.zoneout=0.25").model.cell
    assert OmegaConf.to_container(cell) == {
        "_target_": "own_gated.OtherCell",
        "_partial_": True,
        "hidden_size": 100,
        "zoneout": 0.25,
        "sizes": [1, 2],
    }


@pytest.mark.parametrize(
    "target", ["torch.nn.GRU", "no_module.Cell", "own_gated.Missing", "gyral.cells.Missing", "Cell"]
)
def test_other_classes_have_no_options(target: str, project: Path) -> None:
    assert constructor_defaults(target) == {}


def test_the_text_of_a_module_does_not_execute(project: Path) -> None:
    (project / "own_gated.py").write_text(f"open('executed', 'w')\n{CELL}")
    assert constructor_defaults("own_gated.GatedCell")
    assert not (project / "executed").exists()
    (project / "own_gated.py").write_text("def broken(:")
    assert constructor_defaults("own_gated.GatedCell") == {}
