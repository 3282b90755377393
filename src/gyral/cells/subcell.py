"""Cells that the fused path of another cell can run within its step, as `gyral.cells.fs_rnn.FSRNNCell` does."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from gyral.ops.fast_slow import SubCell


class SubCellMixin(ABC):
    """Interface of a cell that the fused path of another cell can run within its step."""

    may_be_fast: ClassVar[bool] = True  # whether the kernels for a GPU run it where other cells update its state, too

    @abstractmethod
    def subcell_unsupported_reason(self) -> str | None:
        """Return the reason why `as_subcell` does not support these options, device or dtype, or None."""

    @abstractmethod
    def as_subcell(self, constants: Any) -> "SubCell":
        """Return the cell in the form that the kernels of the enclosing cell run.

        Args:
            constants: The return value of the cell's `sequence_constants` for the whole sequence.
        """
