"""Full-capacity unitary recurrent network (full-capacity uRNN)."""

import math
from typing import Annotated

import torch
from torch import Tensor, nn

from gyral.cells.initialization import AUTHORS, draw_wide, uniform_
from gyral.cells.unitary import UnitaryCell
from gyral.core.options import OneOf
from gyral.ops import unitary


class FullURNNCell(UnitaryCell):
    """Full-capacity unitary recurrent network.

    Full-capacity uRNN (Wisdom et al., NIPS 2016): z_t = modReLU(W z_{t−1} + V x_t; b), W any unitary N×N matrix.

    The paper keeps W unitary with gradient steps along the unitary group. Here W = exp(A) for a skew-Hermitian A with
    N² free coordinates, so that any optimizer can train it. (`torch.nn.utils.parametrizations.orthogonal` does the same
    with a complex parameter, but such a module cannot be pickled, and `.to(dtype)` drops the imaginary parts.)

    Parameters: `generator` (N, N), the coordinates of A in the order of `gyral.ops.unitary.unitary`, drawn so that W
    has Haar-random eigenvectors and eigenvalues e^{iω} with ω uniform in ±π; `weight_ih`, `bias` and, with
    `learned_initial_state`, `initial_state`, see `gyral.cells.unitary.UnitaryCell`.

    Args:
        hidden_size: N ≥ 1 complex units; the output is 2N wide.
        initialization: "default": b = 0. "authors": b is uniform in ±0.01, as in the authors' code (stwisdom/urnn on
            GitHub).

    Example:
        >>> import torch
        >>> from gyral import FullURNN
        >>> layer = FullURNN(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 128])
    """

    no_decay_parameters = ("generator",)

    initialization: Annotated[str, OneOf(AUTHORS)] = "default"
    learned_initial_state: bool = False

    def create_operator(self) -> None:
        self.generator = nn.Parameter(torch.empty(self.hidden_size, self.hidden_size))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        # no complex arithmetic in half precision
        normal = torch.randn_like(self.generator, dtype=self.state_dtype.to_complex())
        eigenvectors, _ = torch.linalg.qr(normal)
        angles = draw_wide(self.bias, -math.pi, math.pi)
        self.generator.copy_(unitary.generator_of(eigenvectors, angles))
        if self.initialization == "authors":
            uniform_(self.bias, 0.01)

    def operator(self) -> Tensor:
        return unitary.unitary(self.generator)

    def fused_constants(self) -> Tensor:
        return self.recurrent_weight()[0]  # the matrix exponential reads values

    def apply_operator(self, operator: Tensor, vectors: Tensor) -> Tensor:
        return vectors @ operator.T

    def phases(self) -> list[Tensor]:
        """Return the parameters, or views of them, that determine the angles of rotations; see `figures.landscape`."""
        return [self.generator]
