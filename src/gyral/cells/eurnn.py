"""Efficient unitary recurrent network (EURNN)."""

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from gyral.cells.initialization import AUTHORS, uniform_
from gyral.cells.unitary import EUNN, EUNNFactors, UnitaryCell, apply_eunn, check_capacity
from gyral.core.options import OneOf
from gyral.ops import unitary


class EURNNCell(UnitaryCell):
    """Efficient unitary recurrent network.

    EURNN (Jing et al., "Tunable efficient unitary neural networks", ICML 2017):

    h_t = modReLU(W h_{t−1} + V x_t; b), W = D F_L ⋯ F_1 with L layers of N/2 plane rotations.

    A step costs O(L N) on the reference backend, and in the kernels if L is small compared with N. If N is odd or, with
    capacity "fft", not a power of two, some units have no partner in a layer; the layer does not change them.

    Parameters: `eunn.theta`, `eunn.phi`, `eunn.omega`, see `gyral.cells.unitary.EUNN`; `weight_ih` and `bias`, see
    `gyral.cells.unitary.UnitaryCell`.

    State:
        One tensor (B, 2N): the N real parts, then the N imaginary parts; (B, N) with `is_complex=False`.

    Args:
        hidden_size: N ≥ 1 units; the output is 2N wide if they are complex.
        capacity: L, from 1 to N, layers that pair neighbours (tunable style; N is full capacity), or "fft": ⌈log₂ N⌉
            layers that pair i with i + 2^k (FFT style).
        is_complex: Whether units, rotations and D are complex. If False they are real, without φ and D.
        initialization: "default": V is Xavier-uniform. "authors": V is uniform in ±0.01, as in the authors' code
            (jingli9111/EUNN-tensorflow on GitHub) and in that of Dangovski et al. (TACL 2019). In both b = 0.

    Example:
        >>> import torch
        >>> from gyral import EURNN
        >>> layer = EURNN(16, 64, capacity=4)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 128])
    """

    # the smallest ratio of the width of the state to L at which kernels are faster with L layers than with a dense W
    MINIMUM_RATIO: ClassVar[float] = 32

    capacity: int | str = 2
    is_complex: bool = True
    initialization: Annotated[str, OneOf(AUTHORS)] = "default"

    def check(self) -> None:
        check_capacity(self.capacity, self.hidden_size)

    def create_operator(self) -> None:
        self.eunn = EUNN(self.hidden_size, self.capacity, self.is_complex)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.eunn.reset_parameters()
        if self.initialization == "authors":
            uniform_(self.weight_ih, 0.01)

    def operator(self) -> EUNNFactors:
        return self.eunn(None if self.is_complex else self.state_dtype)

    def apply_operator(self, operator: EUNNFactors, vectors: Tensor) -> Tensor:
        return apply_eunn(operator, vectors)

    def recurrent_weight(self) -> tuple[Tensor, Tensor | None]:
        """Return the layers if they are few, and else the matrix; see `UnitaryCell.recurrent_weight`."""
        layers, omega = self._checked_operator()
        count = len(layers.own)
        if count == 0 or count * self.MINIMUM_RATIO > self.output_size:
            return super().recurrent_weight()
        factors = torch.stack((layers.own, layers.other))
        if omega is None:
            return factors, layers.partner
        # D is part of the last layer
        factors = torch.cat((factors[:, :-1], unitary.phase(factors[:, -1:], omega)), dim=1)
        return torch.cat((factors.real, factors.imag), dim=-1), layers.partner
