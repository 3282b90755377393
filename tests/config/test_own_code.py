"""Mistakes in a user's own cell: one line with the file, the line and what the contract expects."""

import logging
import sys
from logging.handlers import BufferingHandler
from pathlib import Path

import pytest

from tests.helpers.running import SMALL_COPY, invoke

CELL = '''"""A recurrence."""

import torch
from torch import nn
from torch.nn import functional as F

from gyral.cells.base import HiddenState, RecurrentCell


class OwnCell(RecurrentCell):
    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.linear = nn.Linear(input_size, hidden_size)

    def init_state(self, batch_size):
        return HiddenState(self.zeros(batch_size, self.hidden_size))

    def project(self, inputs):
        return self.linear(inputs)

    def step(self, projected, state, constants):
        hidden = torch.tanh(projected + state.hidden)
        return hidden, HiddenState(hidden)
'''
TARGET = "model.cell._target_=own_cell.OwnCell:"
CONTRACT = "own_cell.py:21: OwnCell.step must return (output, state), here (Tensor, HiddenState); it returned"
BASE = """(RecurrentCell):
    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)"""
PLAIN = BASE.replace("RecurrentCell", "nn.Module").replace("__init__(input_size, hidden_size)", "__init__()")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("return hidden, HiddenState(hidden)", "return hidden", f"{CONTRACT} Tensor"),
        ("return hidden, HiddenState(hidden)", "return HiddenState(hidden), 1", f"{CONTRACT} (HiddenState, int)"),
        ("return hidden, HiddenState(hidden)", "pass", f"{CONTRACT} NoneType"),
        ("return hidden, H", "return hidden.mean(0), H", "own_cell.py:21: OwnCell.step must return an output (B, "),
        (BASE, PLAIN, "own_cell.OwnCell must be a subclass of gyral.cells.base.RecurrentCell; "),
        ("torch.tanh", "torch.tanhh", "own_cell.py:22: AttributeError: module 'torch' has no attribute 'tanhh' "),
        ("state.hidden", "state.hiden", "own_cell.py:22: AttributeError: 'HiddenState' object has no attribute "),
        ("nn.Linear", "nn.Linea", "model: own_cell.py:13: AttributeError: module 'torch.nn' has no attribute 'Linea'"),
        ("OwnCell", "OwnCel", f"{TARGET} did you mean own_cell.OwnCel? cannot be imported: own_cell has no OwnCell"),
        ("import torch\n", "import torhc\n", f"{TARGET} cannot be imported: own_cell.py:3: No module named 'torhc'"),
    ],
)
def test_a_mistake_in_a_cell_is_located(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    right: str,
    wrong: str,
    said: str,
) -> None:
    assert right in CELL
    (tmp_path / "own_cell.py").write_text(CELL.replace(right, wrong), encoding="utf-8")
    (tmp_path / "conf" / "cell").mkdir(parents=True)
    (tmp_path / "conf" / "cell" / "own.yaml").write_text("# Own\n_target_: own_cell.OwnCell\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    options = [option for option in SMALL_COPY if not option.startswith("model.")]
    sys.modules.pop("own_cell", None)  # other tests have modules of this name, too
    outcome = invoke(*options, "model=own", "hydra.run.dir=run")
    sys.modules.pop("own_cell", None)
    assert outcome.error.startswith(said), outcome.err


def test_a_target_that_does_not_import_is_one_line() -> None:
    """Hydra also logs three lines of its own."""
    logged = BufferingHandler(100)
    hydra = logging.getLogger("hydra.utils")
    hydra.addHandler(logged)
    outcome = invoke(*SMALL_COPY, "model.cell._target_=no_such.OwnCell")
    hydra.removeHandler(logged)
    assert outcome.err == "error: model.cell._target_=no_such.OwnCell: cannot be imported: No module named 'no_such'\n"
    assert not logged.buffer
