"""Mamba-3: a state space with trapezoidal steps, rotated inputs and outputs, and several of them for each head."""

import math
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DeclaredCell
from gyral.cells.heads import share
from gyral.cells.initialization import draw_step_sizes_, fan_in_uniform_
from gyral.cells.linear_attention import Operands, linear, rms_norm, run_scan, run_step
from gyral.core.errors import OptionError
from gyral.core.options import PositiveInt, Range, derived
from gyral.ops.delta import delta_scan
from gyral.ops.gated_norm import gated_norm
from gyral.ops.scan import is_any_number, scan
from gyral.ops.sequences import last_step, shift

SMALLEST_RATE = 1e-4
HEAD_SIZE = 64  # of the published models


class Projected(NamedTuple):
    """Projected inputs, with leading dimensions (…).

    Attributes:
        u, gate: u_t and z_t (…, H, R, V).
        b, c: B_t and C_t (…, H, R, S) before their rotation.
        delta: Δ_t (…, H).
        decay: Δ_t A_t (…, H).
        now: λ_t (…, H).
        turn: Angles (…, H, pairs) by which the rotation grows.
    """

    u: Tensor
    gate: Tensor
    b: Tensor
    c: Tensor
    delta: Tensor
    decay: Tensor
    now: Tensor
    turn: Tensor


class Mamba3Cell(DeclaredCell):
    """Mamba-3, without the matrix after the recurrence.

    Mamba-3 ("Mamba-3", arXiv 2603.15569, 2026), with R = 1 (SISO) or several inputs and outputs of each head (MIMO).

        [z; u; B; C; δ; a; l; θ] = W_ih x,   Δ = softplus(δ + b_Δ),   λ = σ(l)
        u_r = X_r ⊙ u,   z_r = Z_r ⊙ z                            for R > 1
        A = −max(f(a), 10⁻⁴),   f(a) = 1 + a for a ≥ 0, else 1 / (1 − a)
        φ_t = φ_{t−1} + π tanh(θ) Δ,   B, C ← rotate(RMS(B), RMS(C) + biases; φ_t)      pairs of neighbours
        S_t = e^{ΔA} S_{t−1} + Σ_r (1 − λ) Δ e^{ΔA} B_{t−1,r} u_{t−1,r}ᵀ + λ Δ B_{t,r} u_{t,r}ᵀ
        y_{t,r} = (S_tᵀ C_{t,r} + D u_{t,r}) ⊙ SiLU(z_{t,r}),   y_t = Σ_r O_r ⊙ y_{t,r}

    With `norm`, what is multiplied by the gate is normalized by its root mean square in each head. The published layer
    has inputs of half the width, N = 2X, and a matrix after y_t, which belongs to the block around the cell; see
    `gyral.nn.block.PreNormBlock`. The values of a head have size V = ⌈N / H⌉; the first N of the H V numbers are y.

    Parameters and initial values, with S the state size: `weight_ih` (2HV + 2GRS + 3H + pairs, X), rows as above,
    uniform in ±1/√X; `bias_dt` b_Δ (H,), the inverse of softplus at step sizes whose logarithm is uniform in
    [log 0.001, log 0.1]; `offset_b` and `offset_c` (H, R, S), one; `weight_b`, `weight_c` (S,) and `D` (H,), one; for
    R > 1 `mimo_x` X, 1/R, `mimo_z` Z, one, and `mimo_o` O, 1/R, all (H, R, V); `weight_norm` (H V,), one.

    Args:
        heads: H; ⌈N / 64⌉ if None.
        state_size: S ≥ 1, the size of B and C.
        groups: G, the number of different B and C before the biases; it divides H.
        rank: R ≥ 1; the published models with several inputs have 4.
        rope_fraction: Share of the numbers of B and C that are rotated, in [0, 1].
        norm: Whether there is a normalization before the gate.

    Example:
        >>> layer = Mamba3(16, 64, state_size=16, rank=2)
    """

    fused_operator = delta_scan
    no_decay_parameters = ("bias_dt",)
    vector_parameters = ("offset_b", "offset_c", "mimo_x", "mimo_z", "mimo_o")

    class State(NamedTuple):
        """S (B, H, S, V), B_t (B, H, R, S), u_t (B, H, R, V) and φ_t (B, H, pairs), in [0, 2π)."""

        memory: Tensor
        key: Tensor
        value: Tensor
        angle: Tensor

    heads: PositiveInt = derived(default=None)
    state_size: PositiveInt = 128
    groups: PositiveInt = 1
    rank: PositiveInt = 1
    rope_fraction: Annotated[float, Range(0, maximum=1)] = 0.5
    norm: bool = False

    def check(self) -> None:
        heads = self.heads or share(self.hidden_size, HEAD_SIZE)
        if heads % self.groups != 0:
            raise OptionError("groups", self.groups, f"must divide the number of heads, {heads}")

    def __post_init__(self) -> None:
        self.heads = self.heads or share(self.hidden_size, HEAD_SIZE)
        self.value_size = share(self.hidden_size, self.heads)
        self.width = self.heads * self.value_size
        self.key_size = self.state_size
        self.pairs = int(self.state_size * self.rope_fraction) // 2
        states, count, rank = self.groups * self.rank * self.state_size, self.heads, self.rank
        self.sizes = self.width, self.width, states, states, count, count, count, self.pairs
        self.weight_ih = nn.Parameter(torch.empty(sum(self.sizes), self.input_size))
        self.bias_dt = nn.Parameter(torch.empty(count))
        self.offset_b = nn.Parameter(torch.empty(count, rank, self.state_size))
        self.offset_c = nn.Parameter(torch.empty(count, rank, self.state_size))
        self.weight_b = nn.Parameter(torch.empty(self.state_size))
        self.weight_c = nn.Parameter(torch.empty(self.state_size))
        self.D = nn.Parameter(torch.empty(count))
        for name in ("mimo_x", "mimo_z", "mimo_o"):
            shape = count, rank, self.value_size
            self.register_parameter(name, nn.Parameter(torch.empty(shape)) if rank > 1 else None)
        self.weight_norm = nn.Parameter(torch.empty(self.width)) if self.norm else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            parameter.fill_(1 / self.rank if name in ("mimo_x", "mimo_o") else 1.0)
        fan_in_uniform_(self.weight_ih)
        draw_step_sizes_(self.bias_dt)

    def init_state(self, batch_size: int) -> State:
        shape = batch_size, self.heads
        return self.State(
            self.zeros(*shape, self.key_size, self.value_size, dtype=self.state_dtype),
            self.zeros(*shape, self.rank, self.key_size, dtype=self.state_dtype),
            self.zeros(*shape, self.rank, self.value_size),
            self.zeros(*shape, self.pairs, dtype=self.state_dtype),
        )

    def project(self, inputs: Tensor) -> Projected:
        weights = self.weight_ih.split([sum(self.sizes[:4]), sum(self.sizes[4:])])
        gate, u, b, c = linear(inputs, weights[0]).split(self.sizes[:4], dim=-1)
        delta, rate, now, theta = self.precise_linear(inputs, weights[1]).split(self.sizes[4:], dim=-1)
        gate, u = (part.unflatten(-1, (self.heads, 1, self.value_size)) for part in (gate, u))
        if self.rank > 1:
            gate, u = gate * self.mimo_z, u * self.mimo_x
        shape = self.rank, self.groups, self.key_size
        found = []
        for part, weight in ((b, self.weight_b), (c, self.weight_c)):
            normed = rms_norm(part.unflatten(-1, shape), weight).transpose(-2, -3)  # (…, G, R, S)
            found.append(normed.repeat_interleave(self.heads // self.groups, -3))
        delta = F.softplus(delta + self.bias_dt.to(delta.dtype))
        rate = ((1 + F.relu(rate)) / (1 - rate.clamp(max=0))).clamp(min=SMALLEST_RATE)
        turn = math.pi * torch.tanh(theta).unsqueeze(-2) * delta.unsqueeze(-1)
        b, c = found[0] + self.offset_b, found[1] + self.offset_c
        return Projected(u, gate, b, c, delta, -delta * rate, torch.sigmoid(now), turn)

    def combine(self, projected: Projected, b: Tensor, c: Tensor, key: Tensor, value: Tensor) -> Operands:
        """Return the arguments of the operator: two micro-steps for each input of a head, a copy of it for each output.

        Args:
            projected: The values of `project`.
            b, c: Rotated, (…, H, R, S).
            key, value: B (…, H, R, S) and u (…, H, R, V) of the step before.
        """
        now = projected.now * projected.delta
        before = (projected.delta - now) * torch.exp(projected.decay)
        write = torch.stack((before, now), dim=-2)  # (…, 2R, H)
        write = write if self.rank == 1 else write.repeat_interleave(self.rank, -2)
        keys = torch.cat((key, b), dim=-2).transpose(-2, -3)  # (…, 2R, H, S)
        values = torch.cat((value, projected.u), dim=-2).transpose(-2, -3)
        keys, values, write = self.spread(keys, -2), self.spread(values, -2), self.spread(write, -1)
        return Operands(c.flatten(-3, -2), keys, values, self.spread(projected.decay, -1), write=write)

    def spread(self, tensor: Tensor, dim: int) -> Tensor:
        """Return R copies of each head, next to each other."""
        return tensor if self.rank == 1 else tensor.repeat_interleave(self.rank, dim)

    def finish(self, read: Tensor, projected: Projected, lengths: Tensor | None = None) -> Tensor:
        """Return the outputs (…, N) for what the copies of the heads read (…, H R, V), of one step or of all."""
        run = gated_norm.naive if read.dim() == 3 else gated_norm
        gain: Tensor | None = self.weight_norm
        if gain is not None and self.rank > 1:
            gain = gain.view(self.heads, 1, self.value_size).expand(-1, self.rank, -1).flatten()
        skip, gate = projected.u.flatten(-3, -2), projected.gate.flatten(-3)
        found = run(self.to_parameter_dtype(read), gain, gate, skip, self.spread(self.D, 0), lengths, self.value_size)
        if self.rank > 1:
            found = (found.unflatten(-1, self.mimo_o.shape) * self.mimo_o).sum(-2).flatten(-2)
        return found[..., : self.hidden_size]

    def step(self, projected: Projected, state: State, constants: object) -> tuple[Tensor, State]:
        angle = torch.remainder(state.angle.to(self.state_dtype) + projected.turn, 2 * math.pi)
        b, c = rotate(torch.cat((projected.b, projected.c), dim=-2), angle).chunk(2, dim=-2)
        operands = self.combine(projected, b, c, state.key, state.value)
        read, memory = run_step(operands, self.spread(state.memory, 1))
        final = self.State(memory[:, :: self.rank], b, projected.u, angle)
        return self.finish(read, projected), final

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        projected = self.project(inputs)
        angle = add_up(projected.turn, state.angle, starts)
        b, c = rotate(torch.cat((projected.b, projected.c), dim=-2), angle).chunk(2, dim=-2)
        key, value = (
            shift(first.to(every.dtype), every) for first, every in ((state.key, b), (state.value, projected.u))
        )
        if starts is not None:
            key, value = (part.masked_fill(starts[:, :, None, None, None], 0.0) for part in (key, value))
        operands = self.combine(projected, b, c, key, value)
        read, memory = run_scan(operands, self.spread(state.memory, 1), lengths, starts)
        last = last_step(b, lengths), last_step(projected.u, lengths), last_step(angle, lengths)
        final = self.State(memory[:, :: self.rank], *last)
        return self.finish(read, projected, lengths), final


def rotate(vectors: Tensor, angle: Tensor) -> Tensor:
    """Return vectors (…, H, R, S) whose first pairs of neighbours are rotated by angles (…, H, pairs)."""
    count = 2 * angle.shape[-1]
    one, other = vectors[..., :count].unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = torch.cos(angle).unsqueeze(-2), torch.sin(angle).unsqueeze(-2)
    turned = torch.stack((cosine * one - sine * other, sine * one + cosine * other), dim=-1).flatten(-2)
    return torch.cat((turned, vectors[..., count:]), dim=-1)


def add_up(turns: Tensor, first: Tensor, starts: Tensor | None) -> Tensor:
    """Return the sums of turns (T, B, H, P) since the last start, or with the first angles (B, H, P); in [0, 2π)."""
    # in float32 the sums of thousands of steps would have a few digits of an angle; MPS has no float64
    sums = turns if turns.device.type == "mps" else turns.double()
    if starts is None:
        return torch.remainder(sums.cumsum(0) + first, 2 * math.pi).to(turns.dtype)
    if is_any_number(turns.shape[0]):  # the number of passes would be a constant of the exported program

        def step(turn: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
            angle = torch.remainder(before + turn, 2 * math.pi)
            return angle, angle

        return scan(step, turns, first.to(turns.dtype), None, starts, torch.zeros_like(first, dtype=turns.dtype))[0]
    # in log₂ T passes: a difference of two sums would keep NaN from before a start
    closed, reach = starts[:, :, None, None], 1
    sums = torch.cat((torch.where(closed[:1], sums[:1], sums[:1] + first), sums[1:]))
    while reach < turns.shape[0]:  # sums: over the last `reach` steps; closed: whether one of them is a start
        sums = torch.cat((sums[:reach], torch.where(closed[reach:], sums[reach:], sums[reach:] + sums[:-reach])))
        closed = torch.cat((closed[:reach], closed[reach:] | closed[:-reach]))
        reach *= 2
    return torch.remainder(sums, 2 * math.pi).to(turns.dtype)
