"""Options that cells declare: each has a range or a type, which is checked before a cell is made."""

from functools import partial
from importlib import import_module

import pytest
from torch import nn

import gyral
from gyral import cells
from gyral.core.errors import OptionError
from gyral.core.options import declares_options

# The constructors of these make other cells of their arguments, which are positional.
WITH_CONSTRUCTORS = {"ExternalCell", "FSRNNCell"}
FACTORIES = {"cell", "controller"}


def test_every_option_of_every_cell_is_checked_before_a_cell_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Parameter, "__new__", lambda *_, **__: pytest.fail("a cell was made"))
    for name, module in cells.modules().items():
        cell = getattr(import_module(module), name)
        assert declares_options(cell) == (name not in WITH_CONSTRUCTORS), name
        if name in WITH_CONSTRUCTORS:
            continue
        cell.check_options(3, 8)
        for option in cell.__options__.keys() - FACTORIES - {"input_size", "hidden_size"}:
            with pytest.raises(OptionError, match=f"^{option}="):
                cell.check_options(3, 8, **{option: object()})


def test_options_of_inner_cells_are_checked_with_those_of_the_outer_one() -> None:
    wrong = partial(gyral.RUMCell, lambd=1.0, eta=-1)
    for cell, name in ((gyral.NTMCell, "controller"), (gyral.LANTMCell, "controller"), (gyral.MAGECell, "cell")):
        with pytest.raises(OptionError, match=r"^eta=-1: must be a finite number > 0$"):
            cell.check_options(3, 8, **{name: wrong})
