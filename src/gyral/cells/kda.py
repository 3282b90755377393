"""Kimi Delta Attention: the delta rule with a decay for each channel; and Gated DeltaNet-2, which erases and writes by
channel, too."""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.delta_rule import DeltaRuleCell, draw_rates_
from gyral.cells.heads import share
from gyral.cells.initialization import draw_step_sizes_
from gyral.core.options import PositiveInt, Range, derived


class ChannelDecayCell(DeltaRuleCell):
    """Base class of layers with a decay for each channel of the keys.

        γ = −exp(A_log) softplus(W_Δ' W_Δ x + b_Δ)         or −c σ(exp(A_log) (W_Δ' W_Δ x + b_Δ)) with a bound c
        gate = W_g' W_g x + b_g, with φ = σ

    Parameters and initial values: `weight_ih` (rows, X), rows [q; k; v; g; rates; Δ], `weight_conv` (C, kernel_size),
    `weight_dt` W_Δ' (H K, R) and `weight_gate` W_g' (H V, R), see `initialization`; `bias_gate` (H V,), zero;
    `A_log` (H,), the logarithm of numbers that are uniform in [1, 16], or zero with a bound; `bias_dt` (H K,), the
    inverse of softplus at step sizes whose logarithm is uniform in [log 0.001, log 0.1]; `weight_norm` (V,), one.

    Args:
        key_size: K; V if None.
        rank: R, the rank of the matrices of decay and gate; V if None.
        decay_bound: c > 0, the bound of −γ, such as 5; or None: there is no bound.
    """

    no_decay_parameters = ("A_log", "bias_dt")
    gate_activation = "sigmoid"
    precise_gate = True  # it is of a low rank

    rank: PositiveInt = derived(default=None)
    decay_bound: Annotated[float, Range(above=0)] | None = None

    def __post_init__(self) -> None:
        self.rank = self.rank or share(self.hidden_size, self.heads)
        super().__post_init__()

    def create_rates(self) -> None:
        keys = self.heads * self.key_size
        self.weight_dt = nn.Parameter(torch.empty(keys, self.rank))
        self.bias_dt = nn.Parameter(torch.empty(keys))
        self.A_log = nn.Parameter(torch.empty(self.heads))
        self.weight_gate = nn.Parameter(torch.empty(self.width, self.rank))
        self.bias_gate = nn.Parameter(torch.empty(self.width))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.bias_gate.zero_()
        draw_step_sizes_(self.bias_dt)
        if self.decay_bound is None:
            draw_rates_(self.A_log, 1.0)
        else:
            self.A_log.zero_()

    def decay_and_gate(self, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return γ (…, H, K) and the gate before its activation (…, H V)."""
        logits = F.linear(rows["dt"], self.weight_dt.to(self.state_dtype), self.bias_dt.to(self.state_dtype))
        logits = logits.unflatten(-1, (self.heads, self.key_size))
        rate = torch.exp(self.A_log.to(self.state_dtype)).unsqueeze(-1)
        if self.decay_bound is None:
            decay = -rate * F.softplus(logits)
        else:
            decay = -self.decay_bound * torch.sigmoid(rate * logits)
        return decay, F.linear(rows["gate"], *self.to_state_dtype(self.weight_gate, self.bias_gate))


class KDACell(ChannelDecayCell):
    """Kimi Delta Attention: the delta rule with a decay for each channel, without the matrix after the memory.

    Kimi Delta Attention (Kimi Team, "Kimi Linear: an expressive, efficient attention architecture", 2025).

        S_t = e^{γ_t} ⊙ S_{t−1} + β_t k̂_t (v_t − (e^{γ_t} ⊙ S_{t−1})ᵀ k̂_t)ᵀ,   γ_t for each row of S
        β = σ(W_β x)

    `DeltaRuleCell` has the equations of the layer, and `ChannelDecayCell` those of decay and gate, and the parameters.
    The published models have 16 heads with K = V = 128.

    Example:
        >>> layer = KDA(16, 64, heads=2)
    """

    def further_rows(self) -> dict[str, int]:
        return {"gate": self.rank, "beta": self.heads, "dt": self.rank}

    def rates(self, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        beta = self.to_erase(rows["beta"]).unsqueeze(-2)
        return beta, beta, *self.decay_and_gate(rows)


class GatedDeltaNet2Cell(ChannelDecayCell):
    """Gated DeltaNet-2: KDA with rates for each channel, without the matrix after the memory.

    Gated DeltaNet-2 ("Gated DeltaNet-2", arXiv 2605.22791, 2026): KDA that erases and writes at different rates.

        S_t = e^{γ_t} ⊙ S_{t−1} + k̂_t (w_t ⊙ v_t − (e^{γ_t} ⊙ S_{t−1})ᵀ (e_t ⊙ k̂_t))ᵀ
        e = σ(W_e x) for each channel of the keys,  w = σ(W_w x) for each channel of the values

    `DeltaRuleCell` has the equations of the layer, and `ChannelDecayCell` those of decay and gate, and the parameters;
    the rows of rates in `weight_ih` are [e; w].

    Example:
        >>> layer = GatedDeltaNet2(16, 64)
    """

    def further_rows(self) -> dict[str, int]:
        return {"gate": self.rank, "erase": self.heads * self.key_size, "write": self.width, "dt": self.rank}

    def rates(self, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        erase = self.to_erase(rows["erase"]).unflatten(-1, (1, self.heads, self.key_size))
        write = torch.sigmoid(rows["write"]).unflatten(-1, (1, self.heads, self.value_size))
        return erase, write, *self.decay_and_gate(rows)
