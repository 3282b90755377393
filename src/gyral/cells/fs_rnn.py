"""Fast-slow recurrent networks."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import RecurrentCell
from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError
from gyral.ops import fast_slow
from gyral.ops.dropout import dropout_mask


class Constants(NamedTuple):
    """What `constants` of each cell gave; dropout masks of what goes up to the slow cell, comes down and goes out."""

    fast: tuple[Any, ...]
    slow: Any
    up: Tensor | None
    down: Tensor | None
    out: Tensor | None


class FSRNNCell(RecurrentCell):
    """FS-RNN-k (Mujika, Meier and Steger, NIPS 2017): in a step k fast cells take turns, a slow one has a single turn.

    h = F_1(dropout(x), h)
    s, S's output = S(dropout(h))
    h = F_2(dropout(S's output), h)
    h = F_i(nothing, h)                                 i = 3 … k
    output = dropout(h)

    The fast cells share one state, handed from F_1 to F_k and to F_1 of the next step; S has its own. A cell whose
    input is nothing gets a single zero, as in the authors' code. Both cells may be any of src/cells, with options of
    their own, zoneout and layer normalization among them. There is a fused path where both cells have a `turn`: LSTMs,
    RUM with λ = 0 and the cells with a unitary recurrence.

    Args:
        input_size: X ≥ 1.
        hidden_size: of the fast cells.
        fast, slow: make a cell from its input size and `hidden_size`, e.g. `partial(LSTMCell, layer_norm=True)`.
        slow_size: hidden size of the slow cell; `hidden_size` if None.
        num_fast: k ≥ 2.
        dropout: probability, in [0, 1), of all dropouts above, in training.

    Raises:
        OptionError: an option out of its bounds or of another type, a hidden size given to `fast` or `slow` itself.
    """

    class State(NamedTuple):
        """States of the fast cells, which is one, and of the slow cell."""

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
        check_integer("num_fast", num_fast, minimum=2)
        slow_size = hidden_size if slow_size is None else check_integer("slow_size", slow_size)
        for name, factory, size in (("fast", fast, "hidden_size"), ("slow", slow, "slow_size")):
            if "hidden_size" in getattr(factory, "keywords", {}):
                width = factory.keywords["hidden_size"]  # type: ignore[attr-defined]
                raise OptionError(f"{name}.hidden_size={width}: the {name} cells get theirs from {size}; set that")
        self.dropout = check_real("dropout", dropout, minimum=0, below=1)
        first = fast(input_size, hidden_size=hidden_size)
        self.slow = slow(first.output_size, hidden_size=slow_size)
        second = fast(self.slow.output_size, hidden_size=hidden_size)
        others = [fast(1, hidden_size=hidden_size) for _ in range(num_fast - 2)]
        self.fast = nn.ModuleList([first, second, *others])
        self.output_size = first.output_size

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
        down, slow = self.slow.step(self.slow.project(_drop(output, constants.up)), state.slow, constants.slow)
        inputs = _drop(down, constants.down)
        for index in range(1, len(self.fast)):
            cell = self._fast(index)
            output, fast = cell.step(cell.project(inputs), fast, constants.fast[index])
            if index + 1 < len(self.fast):
                inputs = self.zeros(output.shape[0], 1)
        return _drop(output, constants.out), self.State(fast, slow)

    def fused_unsupported_reason(self) -> str | None:
        for name, cell in (("fast", self._fast(0)), ("slow", self.slow)):
            obstacle = cell.subcell_unsupported_reason()
            if obstacle is not None:
                return f"{name}: {obstacle}"
        return fast_slow.unsupported_reason(next(self.parameters()))

    def fused(self, inputs: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        inputs = F.dropout(inputs, self.dropout, self.training)
        constants = self.sequence_constants(*inputs.shape[:2])
        first, *others = [self._fast(index).as_subcell(own) for index, own in enumerate(constants.fast)]
        rest = len(others) - 1
        order = fast_slow.Order(
            sources=(-1, 0, 1, *[-1] * rest),
            states=(0, 1, 0, *[0] * rest),
            masks=(None, constants.up, constants.down, *[None] * rest),
        )
        leaves = [(*own, None)[:2] for own in (state.fast, state.slow)]  # a cell vector, or none
        turns = [first, self.slow.as_subcell(constants.slow), *others]
        outputs, final = fast_slow.run(inputs, turns, order, leaves, lengths)
        fast, slow = (type(own)(*new[: len(own)]) for own, new in zip((state.fast, state.slow), final, strict=True))
        return _drop(outputs, constants.out), self.State(fast, slow)

    def phases(self) -> list[Tensor]:
        return [phase for cell in (*self.fast, self.slow) for phase in cell.phases()]


def _drop(vector: Tensor, mask: Tensor | None) -> Tensor:
    return vector if mask is None else vector * mask
