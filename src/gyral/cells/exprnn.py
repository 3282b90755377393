"""expRNN and dtriv: networks whose orthogonal matrix is a matrix exponential."""

import math
from dataclasses import field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gyral.cells.initialization import uniform_
from gyral.cells.unitary import UnitaryCell
from gyral.core.errors import UserError
from gyral.core.options import PositiveInt
from gyral.ops.compiler import is_exporting_to_onnx

PROJECT_EVERY = 30  # changes of base between projections of the base to an orthogonal matrix
MOMENTA = {"exp_avg", "momentum_buffer", "grad_avg"}  # means of gradients in the states of torch's optimizers


class ExpRNNCell(UnitaryCell):
    """expRNN: a network whose orthogonal matrix is a matrix exponential.

    expRNN (Lezcano-Casado and Martínez-Rubio, "Cheap orthogonal constraints in neural networks", ICML 2019).

        Q = Q₀ exp(U − Uᵀ),  h_t = modReLU(Qᵀ h_{t−1} + V x_t; b)

    U is strictly upper triangular, and Q₀ = I. Every value of U gives an orthogonal Q, and every rotation is of this
    form. Q is computed once per sequence. The authors train U at a tenth of the learning rate, which is
    `optimizer.dynamics_lr=0.1`.

    Parameters and initial values: `generator` (N, N), U above the diagonal and unused numbers elsewhere: zero, but
    entries (2j, 2j + 1) are uniform in ±π (Henaff et al. 2016), so that U − Uᵀ has 2×2 blocks; `weight_ih` V (N, X),
    Kaiming-normal for ReLU; `bias` b (N,), uniform in ±0.01. Buffer: `base` Q₀ (N, N).

    State:
        One tensor (B, N), the hidden vector.

    Example:
        >>> layer = ExpRNN(16, 64)
    """

    no_decay_parameters = ("generator",)
    is_complex = False
    base: Tensor = field(init=False)

    def create_operator(self) -> None:
        self.generator = nn.Parameter(torch.empty(self.hidden_size, self.hidden_size))
        self.register_buffer("base", torch.empty(self.hidden_size, self.hidden_size))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset all parameters, and Q₀ to the identity."""
        super().reset_parameters()
        nn.init.kaiming_normal_(self.weight_ih, nonlinearity="relu")
        uniform_(self.bias, 0.01)
        self.generator.zero_()
        uniform_(self.generator.diagonal(1)[::2], math.pi)
        nn.init.eye_(self.base)

    def operator(self) -> Tensor:
        """Return Q (N, N).

        Raises:
            UserError: The cell is exported to ONNX.
        """
        if is_exporting_to_onnx():
            raise UserError(f"{type(self).__name__} has a matrix exponential, and cannot be exported to ONNX")
        with torch.autocast(self.generator.device.type, enabled=False):
            upper = self.generator.to(self.state_dtype).triu(1)  # no exponential in half precision
            return self.base.to(self.state_dtype) @ torch.matrix_exp(upper - upper.T)

    def matrix(self) -> Tensor:
        return self.operator().T

    def fused_constants(self) -> Tensor:
        return self.recurrent_weight()[0]  # the matrix exponential reads values

    def apply_operator(self, operator: Tensor, vectors: Tensor) -> Tensor:
        return vectors @ operator


class DTRIVCell(ExpRNNCell):
    """dtriv: expRNN with a base that changes in training; see `gyral.cells.exprnn.DTRIVCell.after_optimizer_step`.

    dtriv (Lezcano-Casado, "Trivializations for gradient-based optimization on manifolds", NeurIPS 2019).

    It is `ExpRNNCell` with a base Q₀ that changes in training: after every K steps of the optimizer, Q₀ becomes Q and U
    becomes 0, which leaves Q as it is, and the optimizer forgets the momentum of U. Far from U = 0 the exponential
    distorts gradients. With every 30th change, Q₀ is projected to the nearest orthogonal matrix.

    In your own loop, call `after_optimizer_step` after each step of the optimizer. Tasks of Gyral do so.

    Args:
        base_steps: K ≥ 1. The authors use 100 among other values; expRNN is the limit of a large K.

    Example:
        >>> layer = DTRIV(16, 64)
    """

    base_steps: PositiveInt = 100

    @torch.no_grad()
    def after_optimizer_step(self, step: int, optimizer: Optimizer) -> None:
        """Change the base if `step`, the number of steps that the optimizer has taken, is a multiple of K."""
        if step % self.base_steps:
            return
        base = self.operator()
        if step // self.base_steps % PROJECT_EVERY == 0:
            left, _, right = torch.linalg.svd(base)
            base = left @ right
        self.base.copy_(base)
        self.generator.zero_()
        # not the means of squares: without them the next steps would be longer than the learning rate allows
        state = optimizer.state.get(self.generator, {})
        for name in MOMENTA & state.keys():
            if state[name] is not None:
                state[name].zero_()
