"""Full-capacity unitary recurrent network (full-capacity uRNN)."""

import math

import torch
from torch import Tensor, nn

from gyral.cells.unitary import UnitaryCell
from gyral.ops import unitary


class FullURNNCell(UnitaryCell):
    """Full-capacity uRNN (Wisdom et al., NIPS 2016): z_t = modReLU(W z_{t−1} + V x_t; b), W any unitary N×N matrix.

    The paper keeps W unitary with gradient steps along the unitary group. Here W = exp(A) for a skew-Hermitian A with
    N² free coordinates, so that any optimizer can train it. (`torch.nn.utils.parametrizations.orthogonal` does the same
    with a complex parameter, but such a module cannot be pickled, and `.to(dtype)` drops the imaginary parts.)

    Parameters: `generator` (N, N), the coordinates of A in the order of `gyral.ops.unitary.unitary`, drawn so that W
    has Haar-random eigenvectors and eigenvalues e^{iω} with ω uniform in ±π; `weight_ih` and `bias`, see
    `gyral.cells.unitary.UnitaryCell`.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1 complex units; the output is 2N wide.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`.

    Raises:
        OptionError: An option is out of bounds or has another type.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, zoneout: float = 0.0, recurrent_dropout: float = 0.0
    ) -> None:
        super().__init__(input_size, hidden_size, is_complex=True, zoneout=zoneout, recurrent_dropout=recurrent_dropout)
        eigenvectors, _ = torch.linalg.qr(torch.randn(hidden_size, hidden_size, dtype=torch.complex64))
        angles = torch.empty(hidden_size).uniform_(-math.pi, math.pi)
        self.generator = nn.Parameter(unitary.generator_of(eigenvectors, angles))

    def operator(self) -> Tensor:
        return unitary.unitary(self.generator)

    def apply_operator(self, operator: Tensor, vectors: Tensor) -> Tensor:
        return vectors @ operator.T

    def phases(self) -> list[Tensor]:
        return [self.generator]
