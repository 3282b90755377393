"""LRU: a linear recurrence with complex eigenvalues."""

import math
from dataclasses import field
from typing import Annotated

import torch
from torch import nn

from gyral.cells.diagonal import StateSpaceCell
from gyral.cells.initialization import draw_wide
from gyral.core.errors import OptionError
from gyral.core.options import PositiveFloat, Range


class LRUCell(StateSpaceCell):
    """Linear recurrent unit.

    Linear recurrent unit (Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu and De, "Resurrecting recurrent neural
    networks for long sequences", ICML 2023, section 3).

        λ = exp(−e^ν + i e^θ)
        h_t = λ ⊙ h_{t−1} + e^γ ⊙ (B x_t)                         h_t has P complex numbers
        y_t = Re(C h_t) + D ⊙ x_t

    |λ| < 1 for every ν. x_t is the input, or W_ih times the input if its size is not N; see
    `gyral.cells.diagonal.WidthPreservingCell`. The nonlinear layers after y_t belong to the block around the cell. The
    state has P real parts, then P imaginary parts. The authors train ν, θ and γ with a lower learning rate.

    Parameters and initial values, with u uniform in [0, 1]: `nu_log` ν (P,) with |λ|² = u (r_max² − r_min²) + r_min²;
    `theta_log` θ (P,), log(max_phase · u); `gamma_log` γ (P,), ½ log(1 − |λ|²); `B` (2, P, N), real and imaginary
    parts, normal / √(2N); `C` (2, N, P), normal / √P; `D` (N,), normal.

    Args:
        r_min, r_max: The initial absolute values of λ are between them; 0 ≤ r_min < r_max ≤ 1.
        max_phase: The largest initial angle of λ, in radians, > 0.

    Example:
        >>> layer = LRU(16, 64, r_min=0.9)
    """

    no_decay_parameters = ("nu_log", "theta_log", "gamma_log")
    kind = "lru"
    nu_log: nn.Parameter = field(init=False)
    theta_log: nn.Parameter = field(init=False)
    gamma_log: nn.Parameter = field(init=False)

    r_min: Annotated[float, Range(0, below=1)] = 0.0
    r_max: Annotated[float, Range(above=0, maximum=1)] = 1.0
    max_phase: PositiveFloat = 6.28

    def check(self) -> None:
        if self.r_min >= self.r_max:
            raise OptionError("r_min", self.r_min, f"must be below r_max, {self.r_max}")

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        # not the ends of the range, whose logarithms are infinite
        uniform = draw_wide(self.D, 1e-6, 1 - 1e-6, 2, self.state_size)
        squared = uniform[0] * (self.r_max**2 - self.r_min**2) + self.r_min**2
        self.nu_log.copy_(torch.log(-0.5 * torch.log(squared)))
        self.theta_log.copy_(torch.log(self.max_phase * uniform[1]))
        self.gamma_log.copy_(0.5 * torch.log1p(-squared))
        self.B.normal_(std=1 / math.sqrt(2 * self.hidden_size))
        self.C.normal_(std=1 / math.sqrt(self.state_size))
        self.D.normal_()
