"""S5: a diagonal state space that all channels share."""

import math
from dataclasses import field
from typing import Annotated

import torch
from torch import Tensor, nn

from gyral.cells.diagonal import StateSpaceCell
from gyral.cells.initialization import STEP_SIZES
from gyral.core.options import OneOf

DISCRETIZATIONS = ("zoh", "bilinear")
LARGEST_REAL = -1e-4  # of an eigenvalue with clip_eigs
TRUNCATED = 0.87962566  # standard deviation of a standard normal variable that is truncated at ±2


class S5Cell(StateSpaceCell):
    """Simplified state space layer.

    Simplified state space layer (Smith, Warrington and Linderman, "Simplified state space layers for sequence
    modeling", ICLR 2023), one block of eigenvalues.

        h_t = λ ⊙ h_{t−1} + B̄ x_t                                 h_t has P complex numbers
        y_t = 2 Re(C h_t) + D ⊙ x_t

    with step sizes Δ, one for each eigenvalue Λ of the continuous system, and

        λ = exp(ΔΛ),  B̄ = (λ − 1) / Λ ⊙ B                         discretization "zoh", zero-order hold
        λ = (1 + ΔΛ/2) / (1 − ΔΛ/2),  B̄ = Δ / (1 − ΔΛ/2) ⊙ B      "bilinear"

    Each Λ stands for itself and its conjugate, hence the factor 2. x_t is the input, or W_ih times the input if its
    size is not N; see `gyral.cells.diagonal.WidthPreservingCell`. The activation and gate after y_t belong to the block
    around the cell. The state has P real parts, then P imaginary parts.

    Parameters and initial values: `Lambda_re`, `Lambda_im` (P,), the eigenvalues of the normal part of the HiPPO-LegS
    matrix of size 2P with positive imaginary part, and V their eigenvectors; `B` (2, P, N), real and imaginary parts,
    V⁻¹ times a matrix (2P, N) normal / √(2P); `C` (2, N, P), a complex matrix (N, 2P) times V, whose parts are normal,
    truncated at two deviations and scaled to the deviation 1 / √(2P); `log_step` log Δ (P,) uniform in
    [log 0.001, log 0.1]; `D` (N,), normal.

    Args:
        discretization: "zoh" or "bilinear".
        clip_eigs: Whether Re Λ is at most −0.0001. Otherwise training can make it positive, and the state unstable.

    Example:
        >>> layer = S5(16, 64, state_size=32)
    """

    no_decay_parameters = ("Lambda_re", "Lambda_im", "log_step")
    gain = 2.0
    Lambda_re: nn.Parameter = field(init=False)
    Lambda_im: nn.Parameter = field(init=False)
    log_step: nn.Parameter = field(init=False)

    discretization: Annotated[str, OneOf(DISCRETIZATIONS)] = "zoh"
    clip_eigs: bool = False

    def __post_init__(self) -> None:
        self.kind = self.discretization
        super().__post_init__()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        real, imaginary, vectors = hippo_normal(self.state_size, self.D.device)
        self.Lambda_re.copy_(real)
        self.Lambda_im.copy_(imaginary)
        full, width = 2 * self.state_size, self.hidden_size
        drawn = torch.randn(full, width, dtype=torch.float64, device=self.D.device) / math.sqrt(full)
        self.B.copy_(torch.view_as_real(vectors.mH @ drawn.to(vectors.dtype)).movedim(-1, 0))
        drawn = nn.init.trunc_normal_(drawn.new_empty(2, width, full), a=-2, b=2) / (TRUNCATED * math.sqrt(full))
        self.C.copy_(torch.view_as_real(torch.complex(drawn[0], drawn[1]) @ vectors).movedim(-1, 0))
        self.log_step.uniform_(*map(math.log, STEP_SIZES))
        self.D.normal_()

    def vectors(self) -> list[Tensor]:
        rate, *others = super().vectors()
        return [rate.clamp(max=LARGEST_REAL) if self.clip_eigs else rate, *others]


def hippo_normal(states: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the eigenvalues with positive imaginary part of the normal part of HiPPO-LegS, and their eigenvectors.

    The matrix −½ I + S, of size 2P, has S_nk = −√(n + ½) √(k + ½) for n > k, and S = −Sᵀ.

    Args:
        states: P.
        device: Of the results.

    Returns:
        Real parts (P,), imaginary parts (P,) in increasing order, and eigenvectors (2P, P), complex; float64.
    """
    root = torch.sqrt(torch.arange(2 * states, dtype=torch.float64, device=device) + 0.5)
    lower = -torch.outer(root, root).tril(-1)
    imaginary, vectors = torch.linalg.eigh(-1j * (lower - lower.T))
    return torch.full_like(imaginary[states:], -0.5), imaginary[states:], vectors[:, states:]
