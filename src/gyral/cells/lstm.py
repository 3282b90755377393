"""Long short-term memory (LSTM)."""

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.base import NO_MASKS, DropoutMasks, kernel_zoneout
from gyral.cells.initialization import orthogonal_
from gyral.cells.layer_norm import LayerNorms
from gyral.cells.subcell import SubCellMixin
from gyral.cells.torch_layer import TorchLayer, TorchLayerCell
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.ops.fast_slow import SubCell
from gyral.ops.zoneout import zoneout as apply_zoneout

INITIALIZATIONS = ("torch", "orthogonal", "joint_orthogonal", "glorot", "uniform")


class Constants(NamedTuple):
    """Masks of the hidden vector, and the zoneout mask (…, B, N) of the cell state or None."""

    masks: DropoutMasks
    zoneout_cell: Tensor | None


class LSTMCell(TorchLayerCell, SubCellMixin):
    """LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), the variant of `torch.nn.LSTM`.

        [i; f; g; o] = W_ih x_t + b_ih + W_hh h_{t−1} + b_hh    input gate, forget gate, candidate, output gate
        c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
        h_t = σ(o) ⊙ tanh(c_t)

    The gate order is that of torch: i, f, g, o. There are no peepholes. Layer normalization acts on each of i, f, g, o
    before its nonlinearity, and on c_t before the tanh of h_t.

    Parameters: see `gyral.cells.torch_layer.TorchLayerCell`; `initialization` determines their values.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        bias: Whether the gates have biases.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016), with gain 1 and bias 0 at the start.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`; zoneout acts on h.
        zoneout_cell: Zoneout probability, in [0, 1), of c in the state; h_t uses the new c (Krueger et al. 2017,
            equation 4).
        initialization: "torch": every weight and bias is uniform in ±1/√N. In all others the biases are 0, except 1 in
            the forget gate, which is the bias of its normalization if there is one. Without biases and normalization
            there is no forget bias, and a warning says so. The kernels W_ih and W_hh are:

            * "orthogonal": orthogonal for each gate.
            * "joint_orthogonal": orthogonal with the gates of a kernel as one matrix, (4N, X) and (4N, N). Layer-norm
              LSTMs in the code of Mujika et al. (amujika/Fast-Slow-LSTM on GitHub) and of Dangovski et al. (TACL 2019;
              rdangovs/rotational-unit-of-memory on GitHub).
            * "glorot": Xavier-uniform as one matrix [W_ih W_hh] (4N, X + N), the `BasicLSTMCell` of TensorFlow 1. Plain
              LSTMs in the code of Dangovski et al.
            * "uniform": uniform in ±0.02. The code of See et al. (ACL 2017; abisee/pointer-generator on GitHub).

    Raises:
        OptionError: A size is below 1, or an option is out of bounds or has another type.
    """

    kernel_rows = ("i", "f", "g", "o")

    layer_is_faster = True

    class State(NamedTuple):
        """Hidden vector and cell state, both (B, N)."""

        hidden: Tensor
        cell: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-5,
        zoneout: float = 0.0,
        zoneout_cell: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "torch",
    ) -> None:
        check_integer("input_size", input_size)
        check_integer("hidden_size", hidden_size)
        super().__init__(
            TorchLayer("LSTM", input_size, hidden_size, bias=check_boolean("bias", bias)),
            layer_norm=layer_norm,
            layer_norm_eps=layer_norm_eps,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
        )
        self.zoneout_cell = check_real("zoneout_cell", zoneout_cell, minimum=0, below=1)
        self.norm_gates = self.normalization(4)
        self.norm_cell = self.normalization(1)
        self.initialization = check_choice("initialization", initialization, INITIALIZATIONS)
        if initialization != "torch" and not (bias or layer_norm):
            warnings.warn(
                f"LSTMCell with initialization={initialization}, bias=False and layer_norm=False has no forget bias",
                stacklevel=2,
            )
        self._initialize()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Draw the parameters of the layer according to `initialization`, if it is not that of the layer itself."""
        if self.initialization == "torch":
            return
        size = self.hidden_size
        for name, parameter in self.layer.named_parameters():
            if "weight" in name:  # a parametrized weight has a longer name
                self._initialize_kernel(parameter)
            else:
                parameter.zero_()
        if isinstance(self.norm_gates, LayerNorms):
            self.norm_gates.bias[1] = 1.0
        elif self.layer.bias:
            self.layer.get_parameter("bias_ih_l0")[size : 2 * size] = 1.0

    def _initialize_kernel(self, kernel: Tensor) -> None:
        """Draw W_ih or W_hh."""
        if self.initialization == "orthogonal":
            for gate in kernel.split(self.hidden_size):
                orthogonal_(gate)
        elif self.initialization == "joint_orthogonal":
            orthogonal_(kernel)
        elif self.initialization == "glorot":
            nn.init.uniform_(kernel, -1, 1).mul_(math.sqrt(6 / (self.input_size + 5 * self.hidden_size)))
        else:
            nn.init.uniform_(kernel, -0.02, 0.02)

    def init_state(self, batch_size: int) -> State:
        return self.State(self.zeros(batch_size, self.hidden_size), self.zeros(batch_size, self.hidden_size))

    def sequence_constants(self, *shape: int) -> Constants:
        return Constants(self.draw_masks(*shape), self.draw_zoneout_mask(self.zoneout_cell, *shape))

    def step(self, projected: Tensor, state: State, constants: Constants) -> tuple[Tensor, State]:
        gates = self.norm_gates(projected + self.project_hidden(state.hidden, constants.masks))
        write, forget, candidate, output = gates.chunk(4, dim=-1)
        cell = forget.sigmoid() * state.cell + write.sigmoid() * candidate.tanh()
        hidden = output.sigmoid() * torch.tanh(self.norm_cell(cell))
        hidden = self.apply_zoneout(hidden, state.hidden, constants.masks)
        if self.zoneout_cell > 0:  # after h, which uses the new c
            mask = constants.zoneout_cell
            cell = apply_zoneout(cell, state.cell, self.zoneout_cell if mask is None else mask)
        return hidden, self.State(hidden, cell)

    def forget_gate(self, projected: Tensor, state: State) -> Tensor:
        """Return the forget gate σ(f), (B, N)."""
        gates = self.norm_gates(projected + self.project_hidden(state.hidden, NO_MASKS))
        return gates.chunk(4, dim=-1)[1].sigmoid()

    def subcell_unsupported_reason(self) -> str | None:
        return self.kernel_unsupported_reason()

    def as_subcell(self, constants: Constants) -> SubCell:
        options = self.kernel_options(constants)
        return SubCell(options.pop("kind"), *self.kernel_weights(), **options)

    def kernel_weights(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
        """Return weight_ih, the sum of both biases, weight_hh, and the normalizations' gains and biases in one row."""
        norms = [p.flatten() for part in (self.norm_gates, self.norm_cell) for p in part.parameters()]
        return *self.summed_kernel_weights(), torch.cat(norms) if norms else None

    def kernel_options(self, constants: Constants) -> dict[str, Any]:
        return {
            "kind": "normalized_lstm" if self.layer_norm else "lstm",
            "keep_cell_state": kernel_zoneout(constants.zoneout_cell, self.zoneout_cell),
            "epsilon": self.layer_norm_eps,
            **self.common_kernel_options(constants.masks),
        }
