"""Efficient unitary recurrent network."""

from torch import Tensor

from gyral.cells.unitary import EUNN, Turns, UnitaryCell, turn
from gyral.core.checks import check_boolean


class EURNNCell(UnitaryCell):
    """EURNN (Jing et al., "Tunable efficient unitary neural networks", ICML 2017):

    h_t = modReLU(W h_{t−1} + V x_t; b), W = D F_L ⋯ F_1 of L layers of N/2 plane rotations.

    A step costs O(L N) on the reference backend. Where N is odd or, with capacity "fft", no power of two, units without
    a partner pass through a layer.

    Parameters: `eunn.theta`, `eunn.phi`, `eunn.omega` of `gyral.cells.unitary.EUNN`; the others are those of
    `gyral.cells.unitary.UnitaryCell`.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1 units; outputs are 2N wide where they are complex.
        capacity: L, from 1 to N, layers that pair neighbours (tunable style; N is full capacity); "fft": ⌈log₂ N⌉
            layers that pair i with i + 2^k (FFT style).
        is_complex: whether units, rotations and D are complex; False: real, without φ and D.
        zoneout, recurrent_dropout: of `gyral.cells.base.RecurrentCell`.

    Raises:
        OptionError: an option out of its bounds or of another type.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        capacity: int | str = 2,
        is_complex: bool = True,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        check_boolean("is_complex", is_complex)
        super().__init__(
            input_size, hidden_size, is_complex=is_complex, zoneout=zoneout, recurrent_dropout=recurrent_dropout
        )
        self.eunn = EUNN(hidden_size, capacity, is_complex)

    def operator(self) -> Turns:
        return self.eunn()

    def apply_operator(self, operator: Turns, vectors: Tensor) -> Tensor:
        return turn(operator, vectors)

    def phases(self) -> list[Tensor]:
        return self.eunn.phases()
