"""Ordered-neurons LSTM (ON-LSTM)."""

from dataclasses import field
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DropoutMasks, RegularizedCell
from gyral.cells.heads import share
from gyral.cells.initialization import AUTHORS, uniform_
from gyral.cells.layer_norm import LayerNorms
from gyral.core.checks import check_integer
from gyral.core.options import OneOf, PositiveFloat, Range, derived
from gyral.ops import gated

CHUNK = 10  # units, by default


class ONLSTMCell(RegularizedCell):
    """Ordered-neurons LSTM.

    ON-LSTM (Shen et al., "Ordered neurons", ICLR 2019): an LSTM whose neurons are ordered by how long they
    remember.

    With the gates f, i, o and the candidate ĉ of an LSTM, cumax(z) = cumsum(softmax(z)), D = ⌈N/C⌉:

        f̃ = cumax(W_f̃ x + U_f̃ h + b_f̃)                     master forget gate, D entries, rising from 0 to 1
        ĩ = 1 − cumax(W_ĩ x + U_ĩ h + b_ĩ)                 master input gate, falling from 1 to 0
        ω = f̃ ⊙ ĩ                                          overlap, where both gates are open
        f̂ = f ⊙ ω + (f̃ − ω),   î = i ⊙ ω + (ĩ − ω)
        c_t = f̂ ⊙ c_{t−1} + î ⊙ ĉ,   h_t = o ⊙ tanh(c_t)    (their equations 1 to 6, 9 to 14)

    Each entry of a master gate applies to C neurons, the last one to fewer if C does not divide N.

    Parameters: `weight_ih` (2D + 4N, X), `weight_hh` (2D + 4N, N) and `bias` (2D + 4N,), gate order [f̃; ĩ; f; i; o; ĉ];
    `initialization` determines their values. With `layer_norm` also `norm_gates`, gain 1 and bias 0.

    Args:
        chunk_size: C, from 1 to N − 1: with a single chunk the master gates are constant. None: 10, or ⌈N / 2⌉ if that
            leaves a single chunk.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016, with gain and bias) to f, i, o and ĉ before
            their nonlinearities.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        initialization: "default": every weight and bias is uniform in ±1/√N. "authors": `weight_ih` is uniform in
            ±1/√X, `weight_hh` in ±1/√N, and `bias` is the sum of two biases, one uniform in each of the intervals, as
            the two linear layers of the authors' code (yikangshen/Ordered-Neurons on GitHub) have them.

    Example:
        >>> layer = ONLSTM(16, 60, chunk_size=10)
    """

    class State(NamedTuple):
        """Hidden vector and cell state, both (B, N)."""

        hidden: Tensor
        cell: Tensor

    kernel_operator = gated.OPERATOR

    hidden_size: Annotated[int, Range(2)] = field(kw_only=False)
    chunk_size: int = derived(default=None)
    layer_norm: bool = False
    layer_norm_eps: PositiveFloat = 1e-5
    initialization: Annotated[str, OneOf(AUTHORS)] = "default"

    def check(self) -> None:
        if self.chunk_size is not None:
            check_integer("chunk_size", self.chunk_size, maximum=self.hidden_size - 1)

    def __post_init__(self) -> None:
        size = self.hidden_size
        self.chunk_size = self.chunk_size or (CHUNK if size > CHUNK else share(size, 2))
        self.chunks = share(size, self.chunk_size)
        rows = 2 * self.chunks + 4 * size
        self.weight_ih = nn.Parameter(torch.empty(rows, self.input_size))
        self.weight_hh = nn.Parameter(torch.empty(rows, size))
        self.bias = nn.Parameter(torch.empty(rows))
        self.norm_gates = LayerNorms(4, size, self.layer_norm_eps) if self.layer_norm else nn.Identity()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        is_authors = self.initialization == "authors"
        recurrent = self.hidden_size**-0.5
        inputs = self.input_size**-0.5 if is_authors else recurrent
        uniform_(self.weight_ih, inputs)
        uniform_(self.weight_hh, recurrent)
        uniform_(self.bias, recurrent)
        if is_authors:  # they have one bias with the inputs and one with the hidden vector; this is their sum
            self.bias.add_(uniform_(torch.empty_like(self.bias), inputs))
        if isinstance(self.norm_gates, LayerNorms):
            self.norm_gates.reset()

    def init_state(self, batch_size: int) -> State:
        return self.State(self.zeros(batch_size, self.hidden_size), self.zeros(batch_size, self.hidden_size))

    def project(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight_ih, self.bias)

    def step(self, projected: Tensor, state: State, constants: DropoutMasks) -> tuple[Tensor, State]:
        size = self.hidden_size
        summed = torch.addmm(projected, self.apply_recurrent_dropout(state.hidden, constants), self.weight_hh.T)
        master, gates = summed.split((2 * self.chunks, 4 * size), dim=-1)
        gates = self.norm_gates(gates)
        forget, write, output = gates[..., : 3 * size].sigmoid().chunk(3, dim=-1)
        master_forget, past = master.unflatten(-1, (2, -1)).softmax(-1).cumsum(-1).unbind(-2)
        both = master_forget * (1 - past)
        # ω, f̃ − ω and ĩ − ω of all neurons at once
        parts = torch.stack((both, master_forget - both, 1 - past - both), dim=-2).unsqueeze(-1)
        expanded = parts.expand(*parts.shape[:-1], self.chunk_size).flatten(-2)[..., :size]
        overlap, kept, new = expanded.unbind(-2)
        cell = torch.addcmul(kept, forget, overlap) * state.cell
        cell = torch.addcmul(cell, torch.addcmul(new, write, overlap), gates[..., 3 * size :].tanh())
        hidden = self.apply_zoneout(output * cell.tanh(), state.hidden, constants)
        return hidden, self.State(hidden, cell)

    def forget_gate(self, projected: Tensor, state: State) -> Tensor:
        """Return the master forget gate f̃ (B, D)."""
        recurrent = F.linear(state.hidden, self.weight_hh[: self.chunks])
        return (projected[..., : self.chunks] + recurrent).softmax(-1).cumsum(-1)

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        if self.recurrent_dropout > 0 or isinstance(self.norm_gates, LayerNorms):
            return "recurrent_dropout and layer_norm have no fused path"
        return gated.unsupported_reason(self.bias)

    def is_fused_recordable(self, starts: bool) -> bool:
        return True

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        weights, keep = (self.weight_ih, self.bias, self.weight_hh, None), self.draw_fused_zoneout(*inputs.shape[:2])
        options: dict[str, Any] = {"keep": keep, "units": self.hidden_size, "chunk": self.chunk_size}
        outputs, hidden, cell = gated.gated(
            "on_lstm", inputs, *weights, *state, lengths=lengths, starts=starts, **options
        )
        assert cell is not None
        return outputs, self.State(hidden, cell)
