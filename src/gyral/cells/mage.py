"""Any cell, with its hidden vector gathered along typed edges (MAGE)."""

from typing import Any, NamedTuple

from torch import Tensor

from gyral.cells.contract import check_cell, make_cell
from gyral.cells.graph import GraphCell
from gyral.cells.gru import GRUCell
from gyral.cells.inputs import LinkedInputs
from gyral.core.errors import OptionError
from gyral.core.options import derived


class MAGECell(GraphCell):
    """Any cell, with its hidden vector gathered along typed edges.

    A cell F whose hidden vector is gathered along typed edges before each step (after Dhingra et al. 2017).

        output, (h_t, s_t) = F(x_t, (g_t, s_{t−1}))

    where s is the rest of its state. With `edge_size`, g_t has for each type of edges e = 0 … E the units h^e of the
    step from which the edge of this type comes, their sum over several such edges, and 0 without one. Around a GRU
    this is `gyral.cells.mage_gru.MAGEGRUCell` with `carry="linked"`. With `edge_size=None`, g_t is the sum of the
    whole hidden vectors over all edges, that from the previous step included; around an `RNNCell` this is the DAG-RNN
    of Shuai et al. (CVPR 2016), which has no types.

    Parameters: the parameters of the cell, in `cell`, with its own initialization.

    Args:
        hidden_size: N ≥ 1, the hidden size of the cell.
        cell: Returns the cell for its input size and `hidden_size`, such as `partial(RUMCell, lambd=1)`; its state has
            a field `hidden`. None: `GRUCell`.
        edge_size: The units of each type 1 … E; None: hidden vectors are summed over all edges.

    Raises:
        OptionError: An argument is out of bounds or has another type, no unit remains for type 0, or the state of the
            cell has no hidden vector.
        UserError: See `gyral.cells.contract.make_cell`.

    Example:
        >>> from functools import partial
        >>> import torch
        >>> import gyral
        >>> from gyral import MAGE
        >>> layer = MAGE(16, 64, cell=partial(gyral.RUMCell, eta=1.0))
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    class State(NamedTuple):
        """State of the cell; the C hidden vectors before its own (B, C, N), the latest last; number (B,) of steps."""

        cell: Any
        memory: Tensor
        count: Tensor  # type: ignore[assignment]  # not the method of tuples

    cell: Any = derived(default=None)  # a factory, then the cell that it makes

    def check(self) -> None:
        super().check()
        check_cell(self.cell, self.input_size, hidden_size=self.hidden_size)

    def __post_init__(self) -> None:
        super().__post_init__()
        make = GRUCell if self.cell is None else self.cell
        self.cell = make_cell(make, self.input_size, "cell", hidden_size=self.hidden_size)
        state = self.cell.init_state(1)
        if not hasattr(state, "hidden") or state.hidden.shape != (1, self.hidden_size):
            raise OptionError("cell", type(self.cell).__name__, f"must have a hidden vector of size {self.hidden_size}")
        self.output_size = self.cell.output_size

    def init_state(self, batch_size: int) -> State:
        return self.State(self.cell.init_state(batch_size), *self.empty_memory(batch_size))

    def project(self, inputs: Tensor | LinkedInputs) -> LinkedInputs:
        vectors, edges = self.split(inputs)
        return LinkedInputs(self.cell.project(vectors), edges)

    def sequence_constants(self, *shape: int) -> Any:
        return self.cell.sequence_constants(*shape)

    def last_hidden(self, state: State) -> Tensor:
        hidden: Tensor = state.cell.hidden
        return hidden

    def step_along(
        self, projected: Any, hidden: Tensor, linked: Tensor, state: State, constants: Any
    ) -> tuple[Tensor, State]:
        gathered = hidden + linked.sum(dim=1) if self.edge_size is None else self.own_units(hidden, linked)
        output, new = self.cell.step(projected, state.cell._replace(hidden=gathered), constants)
        return output, state._replace(cell=new)

    def graph_unsupported_reason(self) -> str | None:
        return self.cell.graph_unsupported_reason()
