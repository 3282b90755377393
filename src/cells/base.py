"""The contract of a recurrent cell.

A cell is one recurrence: what depends on the input alone (`project`, all steps at once), what one step does (`step`),
and its initial state. It knows no task, and no time loop: `src.models.recurrent.Recurrent` runs it.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

State = Any  # a NamedTuple of tensors, batch first in every leaf


class RecurrentCell(nn.Module, ABC):
    """Base of all cells. B batch, T time, X input size, N hidden size.

    Attributes:
        input_size: X.
        hidden_size: N.
        output_size: width of what a step puts out.
    """

    def __init__(self, input_size: int, hidden_size: int, output_size: int | None = None) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.output_size = hidden_size if output_size is None else output_size

    @abstractmethod
    def init_state(self, batch_size: int) -> State:
        """Return the state before the first step, every leaf (B, …), on the cell's device and in its dtype."""

    @abstractmethod
    def project(self, inputs: Tensor) -> Any:
        """Return what depends on the inputs (…, B, X) alone; leaves keep the leading dimensions.

        Called once for the whole sequence (T, B, X). Random masks of a sequence are drawn here, too, so that `step` is
        a function of its arguments.
        """

    @abstractmethod
    def step(self, projected: Any, state: State) -> tuple[Tensor, State]:
        """Take one step: what `project` gave for it and the state before → (output (B, output_size), state)."""

    def forward(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Take one step on inputs (B, X), from the initial state unless one is given, as `torch.nn.GRUCell` does."""
        if state is None:
            state = self.init_state(inputs.shape[0])
        return self.step(self.project(inputs), state)

    def fused_obstacle(self) -> str | None:
        """Return why `fused` cannot run this cell as it is configured, where it lies; None where it can."""
        return f"{type(self).__name__} has no fused path"

    def fused(self, inputs: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Run the whole sequence (T, B, X) at once → (outputs (T, B, output_size), final state); see `Recurrent`."""
        raise NotImplementedError(self.fused_obstacle())

    def zeros(self, *shape: int) -> Tensor:
        """Zeros on the cell's device and in its dtype."""
        parameter = next(self.parameters())
        return torch.zeros(shape, dtype=parameter.dtype, device=parameter.device)


class HiddenState(NamedTuple):
    """State of a cell that carries its hidden vector (B, N) alone."""

    hidden: Tensor


class LayerCell(RecurrentCell):
    """Base of the cells that torch.nn has as a layer: parameters and fused path are the layer's own.

    Parameters are named as torch.nn names them: `layer.weight_ih_l0`, `layer.weight_hh_l0`, `layer.bias_ih_l0`,
    `layer.bias_hh_l0`; initialization is torch's, every weight and bias uniform in ±1/√N.
    """

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__(layer.input_size, layer.hidden_size)
        self.layer = layer

    def init_state(self, batch_size: int) -> State:
        return HiddenState(self.zeros(batch_size, self.hidden_size))

    def project(self, inputs: Tensor) -> Tensor:
        weight, bias = self._parameters_of("ih")
        return F.linear(inputs, weight, bias)

    def recur(self, hidden: Tensor) -> Tensor:
        """Return the recurrent projection of the hidden vector (B, N) for all gates."""
        weight, bias = self._parameters_of("hh")
        return F.linear(hidden, weight, bias)

    def _parameters_of(self, part: str) -> tuple[Tensor, Tensor | None]:
        """Return the layer's weight and bias of the input ("ih") or the recurrent ("hh") projection."""
        weight: Any = getattr(self.layer, f"weight_{part}_l0")
        return weight, getattr(self.layer, f"bias_{part}_l0") if self.layer.bias else None

    def fused_obstacle(self) -> None:
        return None

    def fused(self, inputs: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        leaves = tuple(leaf.unsqueeze(0).contiguous() for leaf in state)
        initial = leaves if len(leaves) > 1 else leaves[0]
        if lengths is None:
            outputs, final = self.layer(inputs, initial)
        else:
            packed = pack_padded_sequence(inputs, lengths.cpu(), enforce_sorted=False)
            outputs, final = self.layer(packed, initial)
            outputs, _ = pad_packed_sequence(outputs, total_length=inputs.shape[0])
        final = final if len(leaves) > 1 else (final,)
        return outputs, type(state)(*(leaf.squeeze(0) for leaf in final))
