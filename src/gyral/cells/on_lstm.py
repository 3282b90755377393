"""Ordered-neurons LSTM (ON-LSTM)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DropoutMasks, RecurrentCell
from gyral.cells.layer_norm import LayerNorms
from gyral.core.checks import check_boolean, check_integer
from gyral.ops import gated


class ONLSTMCell(RecurrentCell):
    """ON-LSTM (Shen et al., "Ordered neurons", ICLR 2019): an LSTM whose neurons are ordered by how long they
    remember.

    With the gates f, i, o and the candidate ĉ of an LSTM, cumax(z) = cumsum(softmax(z)), D = ⌈N/C⌉:

        f̃ = cumax(W_f̃ x + U_f̃ h + b_f̃)                     master forget gate, D entries, rising from 0 to 1
        ĩ = 1 − cumax(W_ĩ x + U_ĩ h + b_ĩ)                 master input gate, falling from 1 to 0
        ω = f̃ ⊙ ĩ                                          overlap, where both gates are open
        f̂ = f ⊙ ω + (f̃ − ω),   î = i ⊙ ω + (ĩ − ω)
        c_t = f̂ ⊙ c_{t−1} + î ⊙ ĉ,   h_t = o ⊙ tanh(c_t)    (their equations 3 to 13)

    Each entry of a master gate applies to C neurons, the last one to fewer if C does not divide N.

    Parameters: `weight_ih` (2D + 4N, X), `weight_hh` (2D + 4N, N) and `bias` (2D + 4N,), gate order [f̃; ĩ; f; i; o; ĉ];
    every weight and bias is uniform in ±1/√N. With `layer_norm` also `norm_gates`, gain 1 and bias 0.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        chunk_size: C, from 1 to N − 1: with a single chunk the master gates are constant.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016, with gain and bias) to f, i, o and ĉ before
            their nonlinearities.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`.

    Raises:
        OptionError: An option is out of bounds or has another type.
    """

    class State(NamedTuple):
        """Hidden and cell vectors, both (B, N)."""

        hidden: Tensor
        cell: Tensor

    owner: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        chunk_size: int = 10,
        layer_norm: bool = False,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        check_integer("hidden_size", hidden_size, minimum=2)
        super().__init__(input_size, hidden_size, zoneout=zoneout, recurrent_dropout=recurrent_dropout)
        self.chunk_size = check_integer("chunk_size", chunk_size, maximum=hidden_size - 1)
        self.chunks = -(-hidden_size // chunk_size)
        # not saved: the options determine it
        self.register_buffer("owner", torch.arange(hidden_size) // chunk_size, persistent=False)
        rows, bound = 2 * self.chunks + 4 * hidden_size, hidden_size**-0.5
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(rows).uniform_(-bound, bound))
        normalized = check_boolean("layer_norm", layer_norm)
        self.norm_gates = LayerNorms(4, hidden_size) if normalized else nn.Identity()

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
        expanded = torch.stack((both, master_forget - both, 1 - past - both), dim=-2).index_select(-1, self.owner)
        overlap, kept, new = expanded.unbind(-2)
        cell = torch.addcmul(kept, forget, overlap) * state.cell
        cell = torch.addcmul(cell, torch.addcmul(new, write, overlap), gates[..., 3 * size :].tanh())
        hidden = self.apply_zoneout(output * cell.tanh(), state.hidden, constants)
        return hidden, self.State(hidden, cell)

    def fused_unsupported_reason(self) -> str | None:
        if self.recurrent_dropout > 0 or isinstance(self.norm_gates, LayerNorms):
            return "recurrent_dropout and layer_norm have no fused path"
        return gated.unsupported_reason(self.bias)

    def fused(self, inputs: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        outputs, hidden, cell = gated.run(
            "on_lstm",
            inputs,
            self.weight_ih,
            self.bias,
            self.weight_hh,
            None,
            state.hidden,
            state.cell,
            keep=self.draw_fused_zoneout(*inputs.shape[:2]),
            lengths=lengths,
            units=self.hidden_size,
            chunk=self.chunk_size,
        )
        assert cell is not None
        return outputs, self.State(hidden, cell)
