"""Cells of other libraries."""

import importlib
from inspect import isclass, signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from src.cells.base import Noise, RecurrentCell
from src.checks import OptionError


class ExternalCell(RecurrentCell):
    """Any cell that is called as `torch.nn.GRUCell` or `torch.nn.LSTMCell` is, by its dotted name.

    The class is made with (input_size, hidden_size, **options) and called with an input (B, X) and a state: a tensor
    (B, H), or a tuple of tensors (B, …) whose first is the hidden vector. It returns the new state, of the same shapes.
    The package torchrecurrent has some thirty such cells.

    Parameters: those of the cell, in `cell`, as it initializes them.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1, as the cell is told.
        cell: dotted name of the class, e.g. torch.nn.GRUCell or torchrecurrent.MGUCell.
        options: further arguments of the class by their names.
        zoneout, recurrent_dropout: of `src.cells.base.RecurrentCell`; the dropout is that of all h in the cell.

    Raises:
        OptionError: a name that does not import or is no module class, options that it does not take, a cell that
            cannot be called like that.
    """

    class State(NamedTuple):
        """Hidden vector (B, H), and what else the cell carries."""

        hidden: Tensor
        others: tuple[Tensor, ...]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        cell: str = "torch.nn.GRUCell",
        options: dict[str, Any] | None = None,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__(input_size, hidden_size, zoneout=zoneout, recurrent_dropout=recurrent_dropout)
        made = import_class(cell)
        options = options or {}
        try:
            signature(made).bind(input_size, hidden_size, **options)
        except TypeError as error:
            given = f"options={options}" if options else f"cell={cell}"
            raise OptionError(f"{given}: {cell}{signature(made)} cannot be made like that: {error}") from error
        self.cell = made(input_size, hidden_size, **options)
        self.is_single, self.shapes = self._probe(cell)
        self.output_size = self.shapes[0][0]

    def _probe(self, name: str) -> tuple[bool, list[torch.Size]]:
        """Return whether the state is a single tensor, and the shapes of its tensors for one row."""
        self.cell.eval()
        try:
            with torch.no_grad():
                state = self.cell(self.zeros(1, self.input_size))
        except (TypeError, ValueError, RuntimeError) as error:
            raise OptionError(f"cell={name}: cannot be called with inputs (B, X) alone: {error}") from error
        finally:
            self.cell.train()
        tensors = (state,) if isinstance(state, Tensor) else state
        if not (isinstance(tensors, tuple) and all(isinstance(tensor, Tensor) for tensor in tensors)):
            raise OptionError(
                f"cell={name}: must return a tensor or a tuple of tensors, returns {type(state).__name__}"
            )
        return isinstance(state, Tensor), [tensor.shape[1:] for tensor in tensors]

    def init_state(self, batch_size: int) -> State:
        hidden, *others = (self.zeros(batch_size, *shape) for shape in self.shapes)
        return self.State(hidden, tuple(others))

    def project(self, inputs: Tensor) -> Tensor:
        return inputs

    def step(self, projected: Tensor, state: State, context: Noise) -> tuple[Tensor, State]:
        old = self.drop(state.hidden, context)
        new = self.cell(projected, old if self.is_single else (old, *state.others))
        hidden, *others = (new,) if self.is_single else new
        hidden = self.carry(hidden, state.hidden, context)
        return hidden, self.State(hidden, tuple(others))


def import_class(name: str) -> type[nn.Module]:
    """Return the module class of a dotted name.

    Raises:
        OptionError: it does not import, or is no class of modules.
    """
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"cell={name}: does not import: {error or 'no dotted name of a class'}") from error
    if not (isclass(found) and issubclass(found, nn.Module)):
        raise OptionError(f"cell={name}: must be a class of torch.nn.Module")
    return found
