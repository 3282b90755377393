"""Recurrent network with fast weights (FW-LN)."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import field
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import AssociativeState, DropoutMasks, RegularizedCell
from gyral.core.options import FiniteFloat, OneOf, PositiveFloat, PositiveInt, Range
from gyral.ops import fast_weights

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class MemoryNetworkCell(RegularizedCell):
    """Base class of cells with a hidden vector and a memory (B, N, N), which `gyral.ops.fast_weights` runs."""

    kernel_operator = fast_weights.OPERATOR

    norm: nn.Module = field(init=False)
    layer_norm_eps: float = field(init=False)
    weight_ih: Tensor = field(init=False)
    weight_hh: Tensor = field(init=False)
    bias: Tensor = field(init=False)

    def init_state(self, batch_size: int) -> AssociativeState:
        size = self.hidden_size
        return AssociativeState(self.zeros(batch_size, size), self.zeros(batch_size, size, size))

    @abstractmethod
    def kernel_options(self) -> dict[str, Any]:
        """Return the kind and the numbers that `gyral.ops.fast_weights.fast_weights` needs."""

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        return fast_weights.unsupported_reason(self.bias, self.hidden_size)

    def is_fused_recordable(self, starts: bool) -> bool:
        return True

    def fused(
        self, inputs: Tensor, state: AssociativeState, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, AssociativeState]:
        norm, options = self.norm, {**self.kernel_options(), **self.kernel_masks(self.draw_masks(*inputs.shape[:2]))}
        weights = self.weight_ih, self.bias, self.weight_hh
        gains = torch.stack((norm.weight, norm.bias)) if isinstance(norm, nn.LayerNorm) else None
        outputs, hidden, memory = fast_weights.fast_weights(
            options.pop("kind"),
            inputs,
            *weights,
            gains,
            *state,
            lengths=lengths,
            starts=starts,
            epsilon=self.layer_norm_eps,
            **options,
        )
        return outputs, AssociativeState(hidden, memory)


class FastWeightsCell(MemoryNetworkCell):
    """Recurrent network with fast weights.

    FW-LN (Ba et al., "Using fast weights to attend to the recent past", NIPS 2016):

        A_t = λ A_{t−1} + η h_t h_tᵀ                        fast weights, A_0 = 0
        h_{t+1}^{(0)} = f(W h_t + C x_t)
        h_{t+1}^{(s+1)} = f(LN(W h_t + C x_t + A_t h_{t+1}^{(s)}))       S times     (their equations 1, 2 and 6)

    f is `activation`, LN is layer normalization with gain and bias. The state is (h, A) with A (B, N, N). The reference
    builds A at each step. The fused path computes A_t h = λ^t A_0 h + η Σ_τ λ^{t−τ} h_τ (h_τ · h) from the hidden
    vectors of the sequence so far, and builds A only for the final state.

    Parameters: `weight_ih` C (N, X), Xavier-uniform; `bias` (N,), zero; `weight_hh` W (N, N), the identity times
    `recurrent_scale`; `norm`, gain 1 and bias 0.

    Args:
        hidden_size: N ≥ 2: a single number is normalized to zero.
        decay: λ, in [0, 1].
        rate: η ≥ 0.
        inner_steps: S ≥ 1.
        activation: The function f, "relu" or "tanh".
        recurrent_scale: Scale of the identity that W is initialized to; 0.05 in the paper.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h in W h.

    Example:
        >>> layer = FastWeights(16, 64, decay=0.9)
    """

    kernel_rows = ("h",)

    hidden_size: Annotated[int, Range(2)] = field(kw_only=False)
    decay: Annotated[float, Range(0, maximum=1)] = 0.95
    rate: Annotated[float, Range(0)] = 0.5
    inner_steps: PositiveInt = 1
    activation: Annotated[str, OneOf(ACTIVATIONS)] = "relu"
    recurrent_scale: FiniteFloat = 0.05
    layer_norm_eps: PositiveFloat = 1e-5

    def __post_init__(self) -> None:
        size = self.hidden_size
        self.weight_ih = nn.Parameter(torch.empty(size, self.input_size))
        self.bias = nn.Parameter(torch.empty(size))
        self.weight_hh = nn.Parameter(torch.empty(size, size))
        self.norm = nn.LayerNorm(size, self.layer_norm_eps)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight_ih)
        self.bias.zero_()
        nn.init.eye_(self.weight_hh).mul_(self.recurrent_scale)
        self.norm.reset_parameters()  # type: ignore[operator]

    def project(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight_ih, self.bias)

    def step(
        self, projected: Tensor, state: AssociativeState, constants: DropoutMasks
    ) -> tuple[Tensor, AssociativeState]:
        old = state.hidden
        memory = torch.baddbmm(state.memory, old.unsqueeze(-1), old.unsqueeze(-2), beta=self.decay, alpha=self.rate)

        def read(vector: Tensor) -> Tensor:
            return torch.bmm(memory, vector.unsqueeze(-1)).squeeze(-1)

        hidden = self.settle(projected, old, constants, read)
        return hidden, AssociativeState(hidden, memory)

    def settle(
        self, projected: Tensor, old: Tensor, constants: DropoutMasks, read: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Run the inner steps; return the next hidden vector (B, N). `read` multiplies the fast weights by a vector."""
        activation = ACTIVATIONS[self.activation]
        drive = torch.addmm(projected, self.apply_recurrent_dropout(old, constants), self.weight_hh.T)
        hidden = activation(drive)
        for _ in range(self.inner_steps):
            hidden = activation(self.norm(drive + read(hidden)))
        return self.apply_zoneout(hidden, old, constants)

    def kernel_options(self) -> dict[str, Any]:
        return {"kind": self.activation, "decay": self.decay, "rate": self.rate, "inner_steps": self.inner_steps}
