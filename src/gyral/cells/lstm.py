"""Long short-term memory (LSTM)."""

import math
import warnings
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import NO_MASKS, DropoutMasks, kernel_zoneout
from gyral.cells.initialization import orthogonal_, uniform_
from gyral.cells.layer_norm import LayerNorms
from gyral.cells.subcell import SubCellMixin
from gyral.cells.torch_layer import TorchLayerCell
from gyral.core.checks import check_integer
from gyral.core.options import OneOf, Probability
from gyral.ops.dropout import zoneout as apply_zoneout
from gyral.ops.fast_slow import SubCell

# The options with which the equations of a step are not those of the kernels within other cells.
BEYOND_KERNELS = ("proj_size", "peepholes", "layer_norm", "zoneout", "zoneout_cell", "recurrent_dropout")
INITIALIZATIONS = ("torch", "orthogonal", "joint_orthogonal", "glorot", "uniform")


class Constants(NamedTuple):
    """Masks of the hidden vector, and the zoneout mask (…, B, N) of the cell state or None."""

    masks: DropoutMasks
    zoneout_cell: Tensor | None


class LSTMCell(TorchLayerCell, SubCellMixin):
    """Long short-term memory.

    LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), the variant of `torch.nn.LSTM`.

        [i; f; g; o] = W_ih x_t + b_ih + W_hh h_{t−1} + b_hh    input gate, forget gate, candidate, output gate
        c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
        h_t = σ(o) ⊙ tanh(c_t)

    The gate order is that of torch: i, f, g, o. Layer normalization acts on each of i, f, g, o before its nonlinearity,
    and on c_t before the tanh of h_t.

    With `proj_size` P, the hidden vector, which is also the output, has P numbers, the `proj_size` of `torch.nn.LSTM`
    (Sak et al., "Long short-term memory recurrent neural network architectures for large scale acoustic modeling",
    Interspeech 2014, the recurrent projection r_t):

        h_t = W_hr (σ(o) ⊙ tanh(c_t))

    With `peepholes`, the gates read the cell state (Gers and Schmidhuber, "Recurrent nets that time and count", IJCNN
    2000), after the layer normalization if there is one:

        i += p_i ⊙ c_{t−1},   f += p_f ⊙ c_{t−1},   o += p_o ⊙ c_t

    Parameters: see `gyral.cells.torch_layer.TorchLayerCell`; with a projection, W_hh is (4N, P) and W_hr (P, N) is
    `layer.weight_hr_l0`. `weight_peephole` (3, N) has the rows [p_i; p_f; p_o]. `initialization` determines their
    values. The kernels have neither option; on the fused path the layer of torch computes projections.

    Args:
        proj_size: P, in [0, N): the size of the projected hidden vector; 0 for no projection.
        peepholes: Whether the gates i, f and o read the cell state.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`; zoneout acts on h.
        zoneout_cell: Zoneout probability, in [0, 1), of c in the state; h_t uses the new c (Krueger et al. 2017,
            equation 4).
        initialization: "torch": every weight and bias is uniform in ±1/√N. In all others the biases and peepholes are
            0, except the biases of the forget gate, which are 1: those of its normalization if there is one. Without
            biases and normalization there is no forget bias, and a warning says so. W_ih, W_hh and W_hr are:

            * "orthogonal": orthogonal for each gate.
            * "joint_orthogonal": orthogonal with the gates of a kernel as one matrix, (4N, X) and (4N, N). Layer-norm
              LSTMs in the code of Mujika et al. (amujika/Fast-Slow-LSTM on GitHub) and of Dangovski et al. (TACL 2019;
              rdangovs/rotational-unit-of-memory on GitHub).
            * "glorot": Xavier-uniform as one matrix [W_ih W_hh] (4N, X + N), the `BasicLSTMCell` of TensorFlow 1. Plain
              LSTMs in the code of Dangovski et al.
            * "uniform": uniform in ±0.02. The code of See et al. (ACL 2017; abisee/pointer-generator on GitHub).

    Example:
        >>> layer = LSTM(16, 64, layer_norm=True)
    """

    kernel_rows = ("i", "f", "g", "o")
    vector_parameters = ("weight_peephole",)

    mode = "LSTM"
    layer_is_faster = True
    without_kernels = ("proj_size", "peepholes")

    class State(NamedTuple):
        """Hidden vector (B, N), or (B, P) with a projection, and cell state (B, N)."""

        hidden: Tensor
        cell: Tensor

    proj_size: int = 0
    peepholes: bool = False
    zoneout_cell: Probability = 0.0
    initialization: Annotated[str, OneOf(INITIALIZATIONS)] = "torch"

    def check(self) -> None:
        check_integer("proj_size", self.proj_size, minimum=0, maximum=self.hidden_size - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initialization != "torch" and not (self.bias or self.layer_norm):
            without = f"initialization={self.initialization}, bias=False and layer_norm=False"
            warnings.warn(f"LSTMCell with {without} has no forget bias", stacklevel=3)
        self._initialize()

    def create_norms(self) -> None:
        self.weight_peephole = nn.Parameter(torch.empty(3, self.hidden_size)) if self.peepholes else None
        self.norm_gates = self.normalization(4)
        self.norm_cell = self.normalization(1)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Draw the parameters according to `initialization`; the layer has drawn its own for "torch"."""
        if self.weight_peephole is not None:
            uniform_(self.weight_peephole, 1 / math.sqrt(self.hidden_size) if self.initialization == "torch" else 0.0)
        if self.initialization == "torch":
            return
        size = self.hidden_size
        for name, parameter in (weights := self.layer.stored()).items():
            if "weight" in name:  # a parametrized weight has a longer name
                self._initialize_kernel(parameter)
            else:
                parameter.zero_()
        if isinstance(self.norm_gates, LayerNorms):
            self.norm_gates.bias[1] = 1.0
        elif self.layer.bias:
            weights["bias_ih_l0"][size : 2 * size] = 1.0

    def _initialize_kernel(self, kernel: Tensor) -> None:
        """Draw W_ih, W_hh or W_hr."""
        if self.initialization == "orthogonal":
            for gate in kernel.split(self.hidden_size):
                orthogonal_(gate)
        elif self.initialization == "joint_orthogonal":
            orthogonal_(kernel)
        elif self.initialization == "glorot":
            width = self.input_size + self.output_size + 4 * self.hidden_size
            if len(kernel) == self.proj_size:  # W_hr
                width = sum(kernel.shape)
            uniform_(kernel, 1).mul_(math.sqrt(6 / width))
        else:
            uniform_(kernel, 0.02)

    def init_state(self, batch_size: int) -> State:
        return self.State(self.zeros(batch_size, self.output_size), self.zeros(batch_size, self.hidden_size))

    def sequence_constants(self, *shape: int) -> Constants:
        return Constants(self.draw_masks(*shape), self.draw_mask(self.zoneout_cell, *shape, self.hidden_size))

    def step(self, projected: Tensor, state: State, constants: Constants) -> tuple[Tensor, State]:
        gates = self.norm_gates(projected + self.project_hidden(state.hidden, constants.masks))
        write, forget, candidate, output = gates.chunk(4, dim=-1)
        if self.weight_peephole is not None:
            write = write + self.weight_peephole[0] * state.cell
            forget = forget + self.weight_peephole[1] * state.cell
        cell = forget.sigmoid() * state.cell + write.sigmoid() * candidate.tanh()
        if self.weight_peephole is not None:
            output = output + self.weight_peephole[2] * cell
        hidden = output.sigmoid() * torch.tanh(self.norm_cell(cell))
        if self.proj_size > 0:
            projection: Any = self.layer.weight_hr_l0
            hidden = F.linear(hidden, projection)
        hidden = self.apply_zoneout(hidden, state.hidden, constants.masks)
        if self.zoneout_cell > 0:  # after h, which uses the new c
            mask = constants.zoneout_cell
            cell = apply_zoneout(cell, state.cell, self.zoneout_cell if mask is None else mask)
        return hidden, self.State(hidden, cell)

    def forget_gate(self, projected: Tensor, state: State) -> Tensor:
        """Return the forget gate σ(f), (B, N)."""
        gates = self.norm_gates(projected + self.project_hidden(state.hidden, NO_MASKS))
        forget = gates.chunk(4, dim=-1)[1]
        if self.weight_peephole is not None:
            forget = forget + self.weight_peephole[1] * state.cell
        return forget.sigmoid()

    def subcell_unsupported_reason(self) -> str | None:
        return self.kernel_unsupported_reason()

    def as_subcell(self, constants: Constants) -> SubCell:
        options = self.kernel_options(constants)
        return SubCell(options.pop("kind"), *self.summed_kernel_weights(), self.kernel_extra(), **options)

    def kernel_extra(self) -> Tensor | None:
        """Return the gains and biases of the normalizations in one row, or None."""
        parts = (self.norm_gates, self.norm_cell)
        norms = [row for part in parts if isinstance(part, LayerNorms) for row in part.flat()]
        return torch.cat(norms) if norms else None

    def kernel_options(self, constants: Constants) -> dict[str, Any]:
        return {
            "kind": "normalized_lstm" if self.layer_norm else "lstm",
            "keep_cell_state": kernel_zoneout(constants.zoneout_cell, self.zoneout_cell),
            "epsilon": self.layer_norm_eps,
            **self.common_kernel_options(constants.masks),
        }
