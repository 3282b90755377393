"""Fast-slow recurrent network (FS-RNN)."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import RecurrentCell
from gyral.cells.contract import make_cell
from gyral.cells.masks import first_parameter
from gyral.cells.subcell import SubCellMixin
from gyral.core.checks import check_integer, check_real
from gyral.ops import fast_slow
from gyral.ops.dropout import dropout_mask

MAX_FAST = 1000  # fast cells


class Constants(NamedTuple):
    """Constants of each cell, and dropout masks or None.

    Attributes:
        fast, slow: The return values of `sequence_constants` of the fast cells and of the slow one.
        up: Dropout mask of the output of the first fast cell, the input of the slow cell.
        down: Dropout mask of the output of the slow cell, the input of the second fast cell.
        out: Dropout mask of the output of the last fast cell.
    """

    fast: tuple[Any, ...]
    slow: Any
    up: Tensor | None
    down: Tensor | None
    out: Tensor | None


class FSRNNCell(RecurrentCell):
    """Fast-slow recurrent network.

    FS-RNN-k (Mujika, Meier and Steger, NIPS 2017): each step runs k fast cells and one slow cell.

        u, h = F_1(dropout(x), h)
        v, s = S(dropout(u), s)
        u, h = F_2(dropout(v), h)
        u, h = F_i(0, h)                                    i = 3 … k
        output = dropout(u)

    Each cell maps an input and its state to an output and the new state. The fast cells share the state h: F_1 to F_k
    update it in this order, and F_1 of the next step starts from it. S has its own state s. F_3 to F_k have no input;
    they read a single zero, as in the authors' code. Fast and slow cells may be any cells, with their own options,
    including zoneout and layer normalization. There is a fused path if both cells implement
    `gyral.cells.subcell.SubCellMixin`: LSTMs, RUM with λ = 0 and the cells with a unitary recurrent matrix. On a GPU,
    RUM has one as the slow cell alone.

    Parameters: the parameters of the cells, in `fast` and `slow`, with their own initialization.

    Args:
        hidden_size: Hidden size of the fast cells.
        fast, slow: Return a cell for its input size and `hidden_size`, such as `partial(LSTMCell, layer_norm=True)`.
        slow_size: Hidden size of the slow cell; `hidden_size` if None.
        num_fast: k ≥ 2.
        dropout: Probability, in [0, 1), of each of the dropouts, in training.

    Raises:
        OptionError: An option is out of bounds or has another type, or `fast` or `slow` also sets a hidden size.
        UserError: See `gyral.cells.contract.make_cell`.

    Example:
        >>> import torch
        >>> import gyral
        >>> from gyral import FSRNN
        >>> layer = FSRNN(16, 64, fast=gyral.LSTMCell, slow=gyral.LSTMCell)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    kernel_operator = fast_slow.OPERATOR

    class State(NamedTuple):
        """The shared state of the fast cells, and the state of the slow cell."""

        fast: Any
        slow: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        fast: Callable[..., RecurrentCell],
        slow: Callable[..., RecurrentCell],
        *,
        slow_size: int | None = None,
        num_fast: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        check_integer("num_fast", num_fast, minimum=2, maximum=MAX_FAST)
        slow_size = hidden_size if slow_size is None else check_integer("slow_size", slow_size)
        self.dropout = check_real("dropout", dropout, minimum=0, below=1)
        first = make_cell(fast, input_size, "fast", hidden_size=hidden_size)
        self.slow = make_cell(slow, first.output_size, "slow", "slow_size", hidden_size=slow_size)
        second = fast(self.slow.output_size, hidden_size=hidden_size)
        others = [fast(1, hidden_size=hidden_size) for _ in range(num_fast - 2)]
        self.fast = nn.ModuleList([first, second, *others])
        self.output_size = first.output_size

    def reset_parameters(self) -> None:
        """Reset the parameters of all cells."""
        first, *others = self.fast
        for cell in (first, self.slow, *others):
            cell.reset_parameters()  # type: ignore[operator]

    def init_state(self, batch_size: int) -> State:
        return self.State(self._fast(0).init_state(batch_size), self.slow.init_state(batch_size))

    def _fast(self, index: int) -> RecurrentCell:
        cell = self.fast[index]
        assert isinstance(cell, RecurrentCell)
        return cell

    def project(self, inputs: Tensor) -> Any:
        return self._fast(0).project(F.dropout(inputs, self.dropout, self.training))

    def sequence_constants(self, *shape: int) -> Constants:
        fast = tuple(self._fast(index).sequence_constants(*shape) for index in range(len(self.fast)))
        widths = (self.output_size, self.slow.output_size, self.output_size)
        return Constants(
            fast, self.slow.sequence_constants(*shape), *(self._draw_dropout(*shape, width) for width in widths)
        )

    def _draw_dropout(self, *shape: int) -> Tensor | None:
        active = self.training and self.dropout > 0
        return dropout_mask(self.zeros(*shape), self.dropout) if active else None

    def step(self, projected: Any, state: State, constants: Constants) -> tuple[Tensor, State]:
        output, fast = self._fast(0).step(projected, state.fast, constants.fast[0])
        down, slow = self.slow.step(self.slow.project(_apply_mask(output, constants.up)), state.slow, constants.slow)
        inputs = _apply_mask(down, constants.down)
        for index in range(1, len(self.fast)):
            cell = self._fast(index)
            output, fast = cell.step(cell.project(inputs), fast, constants.fast[index])
            if index + 1 < len(self.fast):
                inputs = self.zeros(output.shape[0], 1)
        return _apply_mask(output, constants.out), self.State(fast, slow)

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        for name, cell in self._named_cells():
            if not isinstance(cell, SubCellMixin):
                return f"{name}: {type(cell).__name__} has no fused path within another cell"
            reason = cell.subcell_unsupported_reason()
            if reason is not None:
                return f"{name}: {reason}"
            if name == "fast" and first_parameter(self).device.type != "cpu" and not cell.may_be_fast:
                return f"fast: the kernels for a GPU run {type(cell).__name__} as a slow cell alone"
        return fast_slow.unsupported_reason(first_parameter(self))

    def is_fused_recordable(self, starts: bool) -> bool:
        return all(type(cell).fused_constants is RecurrentCell.fused_constants for _, cell in self._named_cells())

    def _named_cells(self) -> list[tuple[str, RecurrentCell]]:
        return [*(("fast", self._fast(index)) for index in range(len(self.fast))), ("slow", self.slow)]

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        inputs = F.dropout(inputs, self.dropout, self.training)
        constants = self.sequence_constants(*inputs.shape[:2])
        first, *others = [_as_subcell(self._fast(index), own) for index, own in enumerate(constants.fast)]
        subcells = [first, _as_subcell(self.slow, constants.slow), *others]
        masks = [None, constants.up, constants.down, *[None] * (len(others) - 1)]
        own: Any = [(*own, None)[:2] for own in (state.fast, state.slow)]  # hidden vector, and cell state or None
        outputs, *final = fast_slow.fast_slow(inputs, subcells, own[0], own[1], masks, lengths=lengths, starts=starts)
        fast, slow = (type(own)(*new[: len(own)]) for own, new in zip((state.fast, state.slow), final, strict=True))
        return _apply_mask(outputs, constants.out), self.State(fast, slow)


def _as_subcell(cell: RecurrentCell, constants: Any) -> fast_slow.SubCell:
    assert isinstance(cell, SubCellMixin)
    return cell.as_subcell(constants)


def _apply_mask(vector: Tensor, mask: Tensor | None) -> Tensor:
    return vector if mask is None else vector * mask
