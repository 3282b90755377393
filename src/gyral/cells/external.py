"""Cells of other libraries (ExternalCell)."""

import importlib
from inspect import isclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.base import DropoutMasks, RecurrentCell
from gyral.core.errors import OptionError


class ExternalCell(RecurrentCell):
    """Any cell with the interface of `torch.nn.GRUCell` or `torch.nn.LSTMCell`, by its dotted name.

    The class takes (input_size, hidden_size, **options). Its instance takes an input (B, X) and a state, which is a
    tensor (B, H) or a tuple of tensors (B, …) that starts with the hidden vector, and returns the new state with the
    same shapes. The package torchrecurrent has about thirty such cells.

    Parameters: the parameters of the cell, in `cell`, with its own initialization.

    Args:
        hidden_size: N ≥ 1, the second argument of the class.
        cell: Dotted name of the class, such as torch.nn.GRUCell or torchrecurrent.MGUCell.
        options: Further keyword arguments of the class.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h everywhere in the cell.

    Raises:
        OptionError: The name does not import or is not a module class, the class does not accept the options, or the
            cell does not have this interface.
    """

    class State(NamedTuple):
        """Hidden vector (B, H), and the other tensors of the cell's state."""

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
        except Exception as error:  # a class of another library may raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise OptionError("cell", cell, f"cannot be made or called like torch.nn.GRUCell: {reason}") from error
        self.output_size = self.shapes[0][0]

    @torch.no_grad()
    def _probe(self) -> tuple[bool, list[torch.Size]]:
        """Return whether the state is a single tensor, and the shapes of its tensors without the batch dimension.

        Raises:
            TypeError: The return value of the cell is not a state that the cell accepts.
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

    def reset_parameters(self) -> None:
        """Reset the parameters of the cell with its own `reset_parameters`.

        Raises:
            RuntimeError: The cell does not have this method.
        """
        reset = getattr(self.cell, "reset_parameters", None)
        if reset is None:
            raise RuntimeError(f"{type(self.cell).__name__} has no reset_parameters")
        reset()

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
    """Import a module class by its dotted name.

    Raises:
        OptionError: The name does not import, or it is not a subclass of `torch.nn.Module`.
    """
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError("cell", name, f"does not import: {error or 'not a dotted name of a class'}") from error
    if not (isclass(found) and issubclass(found, nn.Module)):
        raise OptionError("cell", name, "must be a subclass of torch.nn.Module")
    return found
