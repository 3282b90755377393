"""States of recurrent networks, and changes of some of their rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from gyral.cells.base import RecurrentCell, State
from gyral.cells.masks import first_parameter, options_version
from gyral.core.errors import InputError
from gyral.ops.compiler import is_eager, is_traced
from gyral.ops.scan import choose_rows

# The forms of the states of cells, and what they depend on. No part of the cell, because copies must not share them.
_FORMS: "WeakKeyDictionary[nn.Module, tuple[Any, State]]" = WeakKeyDictionary()


class HasStates(nn.Module, ABC):
    """The part of a recurrent network that makes states. A row of a state belongs to one sequence of the batch.

    Attributes:
        batch_dimension: The dimension of the rows in the tensors of a state.
    """

    batch_dimension: ClassVar[int] = 0

    @abstractmethod
    def split_state(self, state: Any, batch_size: int) -> tuple[State, ...]:
        """Return the states of all cells, as `join_states` takes them, from the state that `run` is called with.

        Raises:
            InputError: See `gyral.nn.recurrent.Recurrent.forward`.
        """

    @abstractmethod
    def join_states(self, states: tuple[State, ...]) -> Any:
        """Return the state that `run` returns."""

    def init_state(self, batch_size: int) -> Any:
        """Return the state before the first step, which is not zero for every cell and may be learned.

        Its tensors share no memory, not even their rows.
        """
        # exporters also ask for the tensor behind a view that they are given as an example
        return tree_map(torch.clone, self.join_states(self._initial_states(batch_size)))

    def reset_state(self, state: Any, rows: Any) -> Any:
        """Return a state with the initial state in some rows, such as those of episodes that have ended.

        Gradients reach `state` through the other rows alone, and a learned initial state through these rows.

        Args:
            state: A state that this network has returned, with B rows, or None for the initial state.
            rows: (B,) bool, a tensor, array or list: True for the rows to reset.

        Raises:
            InputError: The state has other tensors or, outside autocast, another dtype than the initial state; or
                `rows` is not a bool for each of its rows.
        """
        mask = self._read_rows(rows, torch.bool)
        if mask.dtype != torch.bool or mask.dim() != 1:
            raise _rows_error(mask, "must be bool of shape (B,)")
        if state is None:
            return self.init_state(mask.shape[0])
        if (batch_size := self._batch_size(state)) not in (None, mask.shape[0]):
            raise _rows_error(mask, f"must be bool of shape ({batch_size},), that of the state's rows")
        initial = self._initial_states(1)  # the rows are equal
        return self._change(partial(choose_rows, mask), initial, self.split_state(state, mask.shape[0]))

    def select_state(self, state: Any, rows: Any) -> Any:
        """Return a state with some rows of another one, in any order, such as those of sequences that have not ended.

        Args:
            state: A state that this network has returned, with B rows.
            rows: (B',) integers in [0, B), of which some may be equal, or (B,) bool; a tensor, array or list.

        Raises:
            InputError: The state has other tensors or, outside autocast, another dtype than the initial state; or it
                has no such rows.
        """
        batch_size = self._batch_size(state) or 0
        states = self.split_state(state, batch_size)
        index = self._read_rows(rows, torch.int64)
        if index.dtype == torch.bool and index.shape == (batch_size,):
            index = index.nonzero().squeeze(1)
        is_index = index.dtype in (torch.int64, torch.int32) and index.dim() == 1
        if not is_index or not (is_traced() or index.numel() == 0 or 0 <= index.min() <= index.max() < batch_size):
            raise _rows_error(index, f"must be integers from 0 to {batch_size - 1}, or bool of shape ({batch_size},)")
        return self._change(lambda leaf: leaf.index_select(0, index), states)

    def _read_rows(self, rows: Any, dtype: torch.dtype) -> Tensor:
        """Return rows as a tensor on the device of the parameters, of this dtype if there are none."""
        try:
            read = torch.as_tensor(rows, device=self._device())
        except (RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"rows is a {type(rows).__name__}, must be a tensor, an array or a list") from error
        return read if isinstance(rows, Tensor) or read.shape != (0,) else read.to(dtype)

    def _change(self, change: Callable[..., Tensor], *states: tuple[State, ...]) -> Any:
        """Return the joined states of all cells after a change of each tensor (B, …)."""
        return self.join_states(tree_map(change, *states))

    def _batch_size(self, state: Any) -> int | None:
        """Return the number of rows of a state, or None if it has no such dimension."""
        sizes = [leaf.shape for leaf in tree_leaves(state) if isinstance(leaf, Tensor)]
        return sizes[0][self.batch_dimension] if sizes and len(sizes[0]) > self.batch_dimension else None

    def _device(self) -> torch.device:
        return first_parameter(self._cells()[0]).device

    def _initial_states(self, batch_size: int) -> tuple[State, ...]:
        states = []
        for cell in self._cells():
            states.append(cell.init_state(batch_size))
        return tuple(states)

    def _cells(self) -> list[RecurrentCell]:
        return [*self._modules["cells"]._modules.values()]  # type: ignore[union-attr]  # as fast as a list


def state_form(cell: Any) -> State:
    """Return a state of one row whose structure, shapes and types are those of a cell; its values mean nothing."""
    if not is_eager():
        return cell.init_state(1)
    parameter = first_parameter(cell)
    key, known = (options_version(), parameter.dtype, parameter.device), _FORMS.get(cell)
    if known is None or known[0] != key:
        known = _FORMS[cell] = key, tree_map(torch.detach, cell.init_state(1))
    return known[1]


def _rows_error(rows: Tensor, must: str) -> InputError:
    kind = f"{str(rows.dtype).removeprefix('torch.')} of shape {tuple(rows.shape)}"
    return InputError(f"rows are {kind}, {must}")
