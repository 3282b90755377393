"""The rotation scan: RUM with a memory that runs in parallel over time."""

from dataclasses import field
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.base import DeclaredCell
from gyral.cells.heads import check_heads, share
from gyral.cells.initialization import orthogonal_
from gyral.core.options import OneOf, PositiveFloat, PositiveInt, Range, derived
from gyral.ops.autograd import outside_autocast
from gyral.ops.rotation import direction
from gyral.ops.rotation_scan import merge, reflect, reflections, rotation_scan, split
from gyral.ops.rum.naive import ACTIVATIONS

ANGLES = ("single", "double")


class RotationScanCell(DeclaredCell):
    """Rotation scan, a rotational unit of memory that runs in parallel over time.

    Rotation scan, a RUM (Dangovski et al., "Rotational Unit of Memory", TACL 2019) that runs in parallel over time.

        [τ_t; u_t; q_t; ε_t] = W_ih x_t + b                  target, gate, query and embedded input
        R_t = R_{t−1} H_{w₂} H_{w₁}                          associative memory, R_0 = I, with H_w = I − 2wwᵀ
        h̃_t = f(ε_t + R_t q_t)                               candidate
        h_t = σ(u_t) ⊙ h_{t−1} + (1 − σ(u_t)) ⊙ h̃_t
        y_t = η h_t / ‖h_t‖                                  output; y_t = h_t without η

    In RUM, τ, u and the vector that R rotates depend on h_{t−1}. Here they depend on x_t alone, so that all steps run
    at once. The normalized y_t is not fed back. f is `activation`. R, q, ε and τ have H heads of d = max(2, ⌈N/H⌉)
    numbers; the equations of R hold for each head. If H does not divide N, zeros fill the last heads.

    With the double angle, w₁ = ε/‖ε‖ and w₂ = τ/‖τ‖: R turns by twice the angle from ε to τ, in their plane, which
    includes half-turns. With the single angle, w₂ is the direction of ε/‖ε‖ + τ/‖τ‖: R turns by that angle, and
    H_{w₂} H_{w₁} is Rotation(ε, τ) of RUM. It is not continuous where ε and τ are opposite; the double angle is. The
    rotation is the identity where ε or τ is zero.

    The state is R (B, H, d, d), and h (B, N). A step costs O(N d) for each sample. With W_q = 0 and b_q ≠ 0 the
    candidate depends on x only through ε and the product of the rotations so far. Rounding moves R away from a
    rotation: in float32 by about 10⁻⁴ in 10⁴ steps. A sequence that runs at once is corrected before every 64th
    step; see `gyral.ops.rotation_scan`. Single steps, and sequences of up to 64 steps, are not.

    Parameters and initial values: `weight_ih` (4N, X), rows [target; gate; query; embedding], four orthogonal blocks;
    `bias` (4N,), 1 for target, gate and query, 0 for the embedding.

    Args:
        hidden_size: N ≥ 2, since a rotation needs a plane.
        heads: H, from 1 to N; 4, or 1 for N < 4, if None.
        angle: "double" or "single".
        eta: η > 0, the norm of the output, or None for no normalization.
        activation: The function f: "relu", "tanh", "sigmoid" or "softsign".

    Example:
        >>> layer = RotationScan(16, 64, heads=2)
    """

    fused_operator = rotation_scan

    class Projected(NamedTuple):
        """τ, u before its sigmoid, q and ε, each (…, N)."""

        target: Tensor
        gate: Tensor
        query: Tensor
        embedded: Tensor

    class State(NamedTuple):
        """R (B, H, d, d) and h (B, N)."""

        memory: Tensor
        hidden: Tensor

    hidden_size: Annotated[int, Range(2)] = field(kw_only=False)
    heads: PositiveInt = derived(default=None)
    angle: Annotated[str, OneOf(ANGLES)] = "double"
    eta: PositiveFloat | None = None
    activation: Annotated[str, OneOf(ACTIVATIONS)] = "relu"

    def check(self) -> None:
        check_heads(self.heads, self.hidden_size)

    def __post_init__(self) -> None:
        size = self.hidden_size
        self.heads = self.heads or (4 if size >= 4 else 1)
        self.head_size = max(2, share(size, self.heads))
        self.weight_ih = nn.Parameter(torch.empty(4 * size, self.input_size))
        self.bias = nn.Parameter(torch.empty(4 * size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for block in self.weight_ih.split(self.hidden_size):
            orthogonal_(block)
        self.bias.fill_(1.0)
        self.bias[-self.hidden_size :] = 0.0

    def init_state(self, batch_size: int) -> State:
        hidden = self.zeros(batch_size, self.hidden_size, dtype=self.state_dtype)
        identity = torch.eye(self.head_size, dtype=hidden.dtype, device=hidden.device)
        return self.State(identity.repeat(batch_size, self.heads, 1, 1), hidden)

    def parts(self, inputs: Tensor) -> Tensor:
        """Return [τ; u; q; ε] (…, 4N), precisely: errors of the planes add up in the product of all rotations."""
        return self.precise_linear(inputs, self.weight_ih, self.bias)

    def project(self, inputs: Tensor) -> Projected:
        return self.Projected(*self.parts(inputs).split(self.hidden_size, dim=-1))

    def step(self, projected: Projected, state: State, constants: object) -> tuple[Tensor, State]:
        target, gate, query, embedded = projected
        size = self.heads, self.head_size
        # outside autocast: the memory is the product of all rotations so far, whose rounding errors add up
        with outside_autocast(query.device):
            normals = reflections(split(embedded, *size), split(target, *size), self.angle == "double")
            second, first = normals.unbind(-2)
            memory = reflect(reflect(state.memory.to(self.state_dtype), second), first)
            rotated = memory @ split(query, *size).unsqueeze(-1)
        candidate = ACTIVATIONS[self.activation](embedded + merge(rotated.squeeze(-1), self.hidden_size))
        hidden = candidate + torch.sigmoid(gate) * (state.hidden.to(self.state_dtype) - candidate)
        return self.normalize(hidden), self.State(memory, hidden)

    def normalize(self, hidden: Tensor) -> Tensor:
        """Return the outputs for h (…, N)."""
        return self.to_parameter_dtype(hidden if self.eta is None else self.eta * direction(hidden).unit)

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        outputs, memory, hidden = rotation_scan(
            self.parts(inputs),
            *self.to_state_dtype(state.memory, state.hidden),
            lengths=lengths,
            starts=starts,
            double_angle=self.angle == "double",
            activation=self.activation,
        )
        return self.normalize(outputs), self.State(memory, hidden)
