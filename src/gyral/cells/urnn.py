"""Unitary evolution recurrent network (uRNN)."""

import math
from dataclasses import field
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.initialization import AUTHORS, uniform_
from gyral.cells.unitary import UnitaryCell
from gyral.core.options import OneOf
from gyral.ops import unitary


class Operator(NamedTuple):
    """Angles ω of D1, D2, D3 (3, N) and complex axes v of R1, R2 (2, N)."""

    angles: Tensor
    axes: Tensor


class URNNCell(UnitaryCell):
    """Unitary evolution recurrent network.

    uRNN (Arjovsky, Shah and Bengio, ICML 2016): z_t = modReLU(W z_{t−1} + V x_t; b), N complex units, with

    W = D3 R2 F⁻¹ D2 Π R1 F D1                          (their equation 6)

    where D = diag(e^{iω}), R = I − 2 v v*/‖v‖², F is the unitary Fourier transform and Π a random permutation, drawn
    once and saved with the weights. A step costs O(N log N) on the reference backend, and W has 7N parameters.

    Parameters: `angles` ω (3, N), uniform in ±π; `axes` (2, 2, N), real and imaginary parts of v; `weight_ih`, `bias`
    and, with `learned_initial_state`, `initial_state`, see `gyral.cells.unitary.UnitaryCell`.

    Args:
        hidden_size: N ≥ 1 complex units; the output is 2N wide.
        initialization: "default": v is uniform in ±1, b = 0. "authors": v is uniform in ±√(3/(N + 1)), on whose scale
            the size of an update of R depends, and b in ±0.01, as in the authors' code (amarshah/complex_RNN on
            GitHub).

    Example:
        >>> import torch
        >>> from gyral import URNN
        >>> layer = URNN(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 128])
    """

    no_decay_parameters = ("angles", "axes")

    permutation: Tensor = field(init=False)

    initialization: Annotated[str, OneOf(AUTHORS)] = "default"
    learned_initial_state: bool = False

    def create_operator(self) -> None:
        self.angles = nn.Parameter(torch.empty(3, self.hidden_size))
        self.axes = nn.Parameter(torch.empty(2, 2, self.hidden_size))
        self.register_buffer("permutation", torch.empty(self.hidden_size, dtype=torch.int64))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset all parameters, and draw Π again, according to `initialization`."""
        super().reset_parameters()
        uniform_(self.angles, math.pi)
        uniform_(self.axes, 1)
        self.permutation.copy_(torch.randperm(self.hidden_size, device=self.permutation.device))
        if self.initialization == "authors":
            uniform_(self.bias, 0.01)
            self.axes.mul_(math.sqrt(3 / (self.hidden_size + 1)))

    def operator(self) -> Operator:
        return Operator(self.angles, torch.complex(self.axes[:, 0], self.axes[:, 1]))

    def apply_operator(self, operator: Operator, vectors: Tensor) -> Tensor:
        angles, axes = operator
        vectors = unitary.reflect(unitary.dft(unitary.phase(vectors, angles[0])), axes[0])
        vectors = unitary.phase(unitary.permute(vectors, self.permutation), angles[1])
        return unitary.phase(unitary.reflect(unitary.inverse_dft(vectors), axes[1]), angles[2])

    def phases(self) -> list[Tensor]:
        """Return the parameters, or views of them, that determine the angles of rotations; see `figures.landscape`."""
        return [self.angles]
