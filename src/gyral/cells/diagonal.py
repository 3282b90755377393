"""The base class of linear recurrences with a diagonal matrix, which run in parallel over time."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import HiddenState, RecurrentCell, State
from gyral.cells.initialization import fan_in_uniform_
from gyral.cells.masks import first_parameter
from gyral.ops.diagonal import diagonal_scan, multiply
from gyral.ops.sequences import zero_beyond


class DiagonalCell(RecurrentCell):
    """Base class of cells whose state is one vector h_t = a_t ⊙ h_{t−1} + b_t, where a_t and b_t depend on x_t alone.

    A subclass computes a_t and b_t in `coefficients`, and the output from h_t in `read`. Complex numbers are pairs: the
    real parts, then the imaginary parts.

    `fused` is a scan over time: a kernel on a CPU or a GPU, and log₂ T passes in plain torch where there is none.

    State:
        One tensor (B, N), the hidden vector.
    """

    fused_operator = diagonal_scan
    is_complex: ClassVar[bool] = False
    state_size: int  # the number of entries of the state

    def init_state(self, batch_size: int) -> State:
        size = 2 * self.state_size if self.is_complex else self.state_size
        return HiddenState(self.zeros(batch_size, size, dtype=self.wide))

    @abstractmethod
    def coefficients(self, projected: Any, constants: Any) -> tuple[Tensor, Tensor]:
        """Return a_t and b_t, (…, W) or for a constant a (W,), for all steps or for one, in the dtype `wide`."""

    def read(self, hidden: Tensor, projected: Any, constants: Any) -> Tensor:
        """Return the outputs (…, output_size) for states (…, W), for all steps or for one; here they are the states."""
        return self.narrow(hidden)

    def step(self, projected: Any, state: State, constants: Any) -> tuple[Tensor, State]:
        decay, values = self.coefficients(projected, constants)
        hidden = multiply(decay, state.hidden.to(self.wide), self.is_complex) + values
        return self.read(hidden, projected, constants), HiddenState(hidden)

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        projected, constants = self.project(inputs), self.sequence_constants(*inputs.shape[:2])
        outputs, final = self.scan(projected, constants, state.hidden.to(self.wide), lengths, starts)
        outputs = zero_beyond(outputs, lengths)
        return outputs, HiddenState(final)

    def scan(
        self, projected: Any, constants: Any, h0: Tensor, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (T, B, output_size) and the last state (B, W), given that before the first step."""
        decay, values = self.coefficients(projected, constants)
        hidden, final = diagonal_scan(values, decay, h0, lengths=lengths, starts=starts, is_complex=self.is_complex)
        return self.read(hidden, projected, constants), final


class WidthPreservingCell(DiagonalCell):
    """Base class of diagonal recurrences whose published layer has outputs of the width of its inputs.

    If the inputs have another width, x_t is W_ih times the inputs, as the published models have a linear layer before
    the first of these layers.

    Parameter: `weight_ih` (N, X), uniform in ±1/√X; none if X = N.

    State:
        One tensor (B, 2P) for P complex numbers: the P real parts, then the P imaginary parts.

    Args:
        hidden_size: N ≥ 1, the width of the layer and of its outputs.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        is_same = input_size == hidden_size
        self.weight_ih = None if is_same else nn.Parameter(torch.empty(hidden_size, input_size))

    def reset_parameters(self) -> None:
        fan_in_uniform_(self.weight_ih)

    def enter(self, inputs: Tensor) -> Tensor:
        """Return x_t (…, N) in the dtype of the parameters."""
        if self.weight_ih is not None:
            inputs = F.linear(inputs, self.weight_ih)
        return inputs.to(first_parameter(self).dtype)
