"""Cells of other libraries."""

import importlib
from inspect import isclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.base import DropoutMasks, RecurrentCell
from gyral.core.errors import OptionError


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
        zoneout, recurrent_dropout: of `gyral.cells.base.RecurrentCell`; the dropout is that of all h in the cell.

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
        try:
            self.cell = import_class(cell)(input_size, hidden_size, **(options or {}))
            self.is_single, self.shapes = self._probe()
        except OptionError:
            raise
        except Exception as error:  # code of others may raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise OptionError(f"cell={cell}: cannot be made or called like torch.nn.GRUCell: {reason}") from error
        self.output_size = self.shapes[0][0]

    @torch.no_grad()
    def _probe(self) -> tuple[bool, list[torch.Size]]:
        """Return whether the state is a single tensor, and the shapes of its tensors for one row.

        Raises:
            TypeError: what the cell returns is no state that it takes back.
        """
        inputs = self.zeros(2, self.input_size)
        self.cell.eval()
        states = [self.cell(inputs)]
        states.append(self.cell(inputs, states[0]))
        self.cell.train()
        tensors = [(state,) if isinstance(state, Tensor) else state for state in states]
        for each in tensors:
            if not (isinstance(each, tuple) and each and all(isinstance(tensor, Tensor) for tensor in each)):
                raise TypeError("it must return a tensor or a tuple of tensors, the new state and nothing else")
        shapes = [[tensor.shape for tensor in each] for each in tensors]
        if shapes[0] != shapes[1] or any(len(shape) < 2 or shape[0] != 2 for shape in shapes[0]):
            raise TypeError("its state must have tensors (B, …) of the same shapes at every step")
        return isinstance(states[0], Tensor), [shape[1:] for shape in shapes[0]]

    def init_state(self, batch_size: int) -> State:
        hidden, *others = (self.zeros(batch_size, *shape) for shape in self.shapes)
        return self.State(hidden, tuple(others))

    def project(self, inputs: Tensor) -> Tensor:
        return inputs

    def step(self, projected: Tensor, state: State, constants: DropoutMasks) -> tuple[Tensor, State]:
        old = self.apply_recurrent_dropout(state.hidden, constants)
        new = self.cell(projected, old if self.is_single else (old, *state.others))
        hidden, *others = (new,) if self.is_single else new
        hidden = self.apply_zoneout(hidden, state.hidden, constants)
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
