"""Gated recurrent unit (GRU)."""

from typing import Any

import torch
from torch import Tensor

from gyral.cells.base import NO_MASKS, DropoutMasks, HiddenState
from gyral.cells.torch_layer import TorchLayerCell


class GRUCell(TorchLayerCell):
    """Gated recurrent unit.

    GRU (Cho et al. 2014) in the variant of cuDNN and `torch.nn.GRU`: the reset gate acts after the product.

        r = σ(W_ir x + b_ir + W_hr h + b_hr)                reset gate
        z = σ(W_iz x + b_iz + W_hz h + b_hz)                update gate
        n = tanh(W_in x + b_in + r ⊙ (W_hn h + b_hn))       candidate
        h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}

    The gate order is that of torch: r, z, n. Layer normalization acts on r and z before their sigmoids and on n before
    its tanh.

    Parameters: see `gyral.cells.torch_layer.TorchLayerCell`; every weight and bias is uniform in ±1/√N.

    Args:

    Example:
        >>> import torch
        >>> from gyral import GRU
        >>> layer = GRU(16, 64, bidirectional=True)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 128])
    """

    kernel_rows = ("r", "z", "n")
    mode = "GRU"

    State = HiddenState

    def create_norms(self) -> None:
        self.norm_gates = self.normalization(2)
        self.norm_candidate = self.normalization(1)

    def step(self, projected: Tensor, state: HiddenState, constants: DropoutMasks) -> tuple[Tensor, HiddenState]:
        size = self.hidden_size
        input_gates, input_candidate = projected.split((2 * size, size), dim=-1)
        hidden_gates, hidden_candidate = self.project_hidden(state.hidden, constants).split((2 * size, size), dim=-1)
        reset, update = torch.sigmoid(self.norm_gates(input_gates + hidden_gates)).chunk(2, dim=-1)
        candidate = torch.tanh(self.norm_candidate(input_candidate + reset * hidden_candidate))
        hidden = candidate + update * (state.hidden - candidate)
        hidden = self.apply_zoneout(hidden, state.hidden, constants)
        return hidden, HiddenState(hidden)

    def forget_gate(self, projected: Tensor, state: HiddenState) -> Tensor:
        """Return the update gate z (B, N), which multiplies the old hidden vector."""
        size = 2 * self.hidden_size
        hidden_gates = self.project_hidden(state.hidden, NO_MASKS)[..., :size]
        return torch.sigmoid(self.norm_gates(projected[..., :size] + hidden_gates)).chunk(2, dim=-1)[1]

    def kernel_options(self, constants: DropoutMasks) -> dict[str, Any]:
        return {"kind": "gru", **self.common_kernel_options(constants)}
