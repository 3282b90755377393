"""The base class of linear recurrences with a diagonal matrix, which run in parallel over time."""

from abc import abstractmethod
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DeclaredCell, HiddenState, State
from gyral.cells.initialization import fan_in_uniform_
from gyral.cells.masks import first_parameter
from gyral.core.options import PositiveInt, derived
from gyral.ops.autograd import has_autocast
from gyral.ops.diagonal import diagonal_scan, multiply, state_space
from gyral.ops.diagonal.layer import discretize, readout_weights, scaled_drive
from gyral.ops.operator import Operator
from gyral.ops.scan import Shared
from gyral.ops.sequences import zero_beyond


class DiagonalCell(DeclaredCell):
    """Base class of cells whose state is one vector h_t = a_t ⊙ h_{t−1} + b_t, where a_t and b_t depend on x_t alone.

    A subclass computes a_t and b_t in `coefficients`, and the output from h_t in `read`. Complex numbers are pairs: the
    real parts, then the imaginary parts.

    `fused` is a scan over time: a kernel on a CPU or a GPU, and log₂ T passes in plain torch where there is none.

    State:
        One tensor (B, N), the hidden vector.
    """

    steps_alone = True
    fused_operator: ClassVar[Operator] = diagonal_scan
    scan_operator: ClassVar[Operator] = diagonal_scan
    is_complex: ClassVar[bool] = False
    state_size: int = field(init=False)  # the number of entries of the state

    def init_state(self, batch_size: int) -> State:
        size = 2 * self.state_size if self.is_complex else self.state_size
        return HiddenState(self.zeros(batch_size, size, dtype=self.state_dtype))

    @abstractmethod
    def coefficients(self, projected: Any, constants: Any) -> tuple[Tensor, Tensor]:
        """Return a_t and b_t, (…, W) or for a constant a (W,), for all steps or for one, in the dtype `state_dtype`."""

    def read(self, hidden: Tensor, projected: Any, constants: Any) -> Tensor:
        """Return the outputs (…, output_size) for states (…, W), for all steps or for one; here they are the states."""
        return self.to_parameter_dtype(hidden)

    def step(self, projected: Any, state: State, constants: Any) -> tuple[Tensor, State]:
        decay, values = self.coefficients(projected, constants)
        hidden = multiply(decay, state.hidden.to(self.state_dtype), self.is_complex) + values
        return self.read(hidden, projected, constants), HiddenState(hidden)

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        projected, constants = self.project(inputs), self.sequence_constants(*inputs.shape[:2])
        outputs, final = self.scan(projected, constants, state.hidden.to(self.state_dtype), lengths, starts)
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

    def __post_init__(self) -> None:
        is_same = self.input_size == self.hidden_size
        self.weight_ih = None if is_same else nn.Parameter(torch.empty(self.hidden_size, self.input_size))

    def reset_parameters(self) -> None:
        fan_in_uniform_(self.weight_ih)

    def project_inputs(self, inputs: Tensor) -> Tensor:
        """Return x_t (…, N) in the dtype of the parameters."""
        if self.weight_ih is not None:
            inputs = F.linear(inputs, self.weight_ih)
        return inputs.to(first_parameter(self).dtype)

    def product_dtype(self) -> torch.dtype | None:
        """Return the dtype of the factors of products, of autocast or of the parameters; None for `state_dtype`."""
        parameter = first_parameter(self)
        if has_autocast(parameter.device.type) and torch.is_autocast_enabled(parameter.device.type):
            return torch.get_autocast_dtype(parameter.device.type)
        return None if parameter.dtype == self.state_dtype else parameter.dtype


class StateSpaceCell(WidthPreservingCell):
    """Base class of h_t = λ ⊙ h_{t−1} + f ⊙ (B x_t) and y_t = κ Re(C h_t) + D ⊙ x_t, with P complex numbers in h_t.

    λ and f are functions of three vectors (P,), the parameters in `no_decay_parameters`. The others are `B` (2, P, N)
    and `C` (2, N, P), real and imaginary parts, and `D` (N,).

    Args:
        state_size: P, the number of complex numbers in the state; N if None.
    """

    fused_operator = state_space
    is_complex = True
    gain: ClassVar[float] = 1.0  # κ

    state_size: PositiveInt = derived(default=None)
    kind: str = field(init=False)  # of λ and f, see `gyral.ops.diagonal.layer.discretize`

    class Projected(NamedTuple):
        """x_t (…, N), and f ⊙ (B x_t) (…, 2P)."""

        inputs: Tensor
        driven: Tensor

    class Constants(NamedTuple):
        """λ (2P,), and the weights (N, 2P) that give κ Re(C h) for [Re h; Im h]."""

        decay: Shared
        readout: Shared

    def __post_init__(self) -> None:
        super().__post_init__()
        self.state_size = self.state_size or self.hidden_size
        for name in self.no_decay_parameters:
            self.register_parameter(name, nn.Parameter(torch.empty(self.state_size)))
        self.B = nn.Parameter(torch.empty(2, self.state_size, self.hidden_size))
        self.C = nn.Parameter(torch.empty(2, self.hidden_size, self.state_size))
        self.D = nn.Parameter(torch.empty(self.hidden_size))
        self.reset_parameters()

    @abstractmethod
    def reset_parameters(self) -> None:
        super().reset_parameters()

    def vectors(self) -> list[Tensor]:
        """Return the vectors (P,) that λ and f are functions of: rate, frequency and scale of `state_space`."""
        return [getattr(self, name) for name in self.no_decay_parameters]

    def sequence_constants(self, *shape: int) -> Constants:
        decay, _ = discretize(self.kind, *self.to_state_dtype(*self.vectors()))
        return self.Constants(Shared(decay), Shared(readout_weights(self.C, self.gain).to(self.state_dtype)))

    def project(self, inputs: Tensor) -> Projected:
        entered = self.project_inputs(inputs)
        _, factor = discretize(self.kind, *self.to_state_dtype(*self.vectors()))
        weight = scaled_drive(self.B, factor).to(self.B.dtype)
        return self.Projected(entered, F.linear(entered, weight).to(self.state_dtype))

    def coefficients(self, projected: Projected, constants: Constants) -> tuple[Tensor, Tensor]:
        return constants.decay.value, projected.driven

    def read(self, hidden: Tensor, projected: Projected, constants: Constants) -> Tensor:
        return self.to_parameter_dtype(F.linear(hidden, constants.readout.value)) + self.D * projected.inputs

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        parts = self.to_state_dtype(self.project_inputs(inputs), self.B, self.C, self.D, *self.vectors(), state.hidden)
        options = self.kind, self.gain, self.product_dtype()
        outputs, final = state_space(*parts, lengths, starts, *options)
        return self.to_parameter_dtype(outputs), HiddenState(final)
