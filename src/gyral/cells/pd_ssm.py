"""PD-SSM: a state space whose matrix is a diagonal one times a matrix with a single one in each column."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import HiddenState
from gyral.cells.diagonal import WidthPreservingCell
from gyral.core.options import PositiveInt
from gyral.ops.permutation_scan import permutation_scan, step
from gyral.ops.polar import polar
from gyral.ops.scan import Shared


class PDSSMCell(WidthPreservingCell):
    """PD-SSM, a state space whose matrix moves the numbers of the state.

    PD-SSM (Terzić et al., "Structured sparse transition matrices to enable state tracking in state-space models",
    2025).

        a_t = σ(W_r x_t + b_r) ⊙ exp(2πi σ(W_φ x_t + b_φ))
        P_t: in each column 1 in the row with the largest entry of Σ_k softmax(W_s x_t)_k M_k, else 0
        h_t = P_t (a_t ⊙ h_{t−1}) + B x_t                         h_t has P complex numbers
        y_t = Re(C h_t) + D ⊙ x_t

    P_t moves the numbers of the state, and may add some: a finite automaton with P states fits into it. Its gradient is
    that of a softmax over the rows (straight-through estimator): not the derivative, which is zero. σ(·) are those of
    the authors' code, where the paper has networks with a hidden layer. x_t is the input, or W_ih times the input if
    its size is not N; see `gyral.cells.diagonal.WidthPreservingCell`. The state has P real parts, then P imaginary
    parts. A step costs O(P) besides the products with the parameters, and those for P_t O(K P²).

    Parameters and initial values: `weight_magnitude` W_r, `weight_phase` W_φ (P, N), normal / √N; `bias_magnitude`,
    `bias_phase` (P,), zero; `selector` W_s (K, N), normal / √N; `dictionary` M (K, P, P), normal; `B` (2, P, N), real
    and imaginary parts, normal / √(2N); `C` (2, N, P), normal / √P; `D` (N,), normal.

    Args:
        state_size: P, the number of complex numbers in the state.
        dictionary_size: K, the number of matrices M_k.

    Example:
        >>> layer = PDSSM(16, 64, state_size=8)
    """

    fused_operator = permutation_scan
    is_complex = True
    estimates_gradient = True

    class Projected(NamedTuple):
        """x_t (…, N), B x_t and a_t (…, 2P), and the weights of the matrices (…, K)."""

        inputs: Tensor
        driven: Tensor
        decay: Tensor
        selection: Tensor

    state_size: PositiveInt = 32
    dictionary_size: PositiveInt = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        width, size, count = self.hidden_size, self.state_size, self.dictionary_size
        self.weight_magnitude = nn.Parameter(torch.empty(size, width))
        self.weight_phase = nn.Parameter(torch.empty(size, width))
        self.bias_magnitude = nn.Parameter(torch.empty(size))
        self.bias_phase = nn.Parameter(torch.empty(size))
        self.selector = nn.Parameter(torch.empty(count, width))
        self.dictionary = nn.Parameter(torch.empty(count, size, size))
        self.B = nn.Parameter(torch.empty(2, size, width))
        self.C = nn.Parameter(torch.empty(2, width, size))
        self.D = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        for weight in (self.weight_magnitude, self.weight_phase, self.selector):
            weight.normal_(std=self.hidden_size**-0.5)
        self.bias_magnitude.zero_()
        self.bias_phase.zero_()
        self.dictionary.normal_()
        self.B.normal_(std=(2 * self.hidden_size) ** -0.5)
        self.C.normal_(std=self.state_size**-0.5)
        self.D.normal_()

    def sequence_constants(self, *shape: int) -> Shared:
        """Return the weights (N, 2P) that give Re(C h) for [Re h; Im h]."""
        return Shared(torch.cat((self.C[0], -self.C[1]), dim=1).to(self.state_dtype))

    def project(self, inputs: Tensor) -> Projected:
        entered = self.project_inputs(inputs)
        driven = F.linear(entered, self.B.flatten(0, 1)).to(self.state_dtype)
        magnitude = self.precise_linear(entered, self.weight_magnitude, self.bias_magnitude)
        phase = self.precise_linear(entered, self.weight_phase, self.bias_phase)
        decay = (polar if phase.dim() > 2 else polar.naive)(magnitude, phase)  # of a sequence, or of one step
        return self.Projected(entered, driven, decay, F.linear(entered, self.selector).to(self.state_dtype).softmax(-1))

    def coefficients(self, projected: Projected, constants: Shared) -> tuple[Tensor, Tensor]:
        return projected.decay, projected.driven

    def read(self, hidden: Tensor, projected: Projected, constants: Shared) -> Tensor:
        return self.to_parameter_dtype(F.linear(hidden, constants.value)) + self.D * projected.inputs

    def step(self, projected: Projected, state: HiddenState, constants: Shared) -> tuple[Tensor, HiddenState]:
        dictionary, before = self.to_state_dtype(self.dictionary, state.hidden)
        hidden = step(projected.selection, dictionary, projected.decay, projected.driven, before)
        return self.read(hidden, projected, constants), HiddenState(hidden)

    def scan(
        self, projected: Projected, constants: Shared, h0: Tensor, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        parts = projected.selection, self.dictionary.to(self.state_dtype), projected.decay, projected.driven
        hidden, final = permutation_scan(*parts, h0, lengths=lengths, starts=starts)
        return self.read(hidden, projected, constants), final
