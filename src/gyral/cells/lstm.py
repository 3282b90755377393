"""Long short-term memory (LSTM)."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.base import DropoutMasks, kernel_zoneout
from gyral.cells.layer_norm import LayerNorms
from gyral.cells.subcell import SubCellMixin
from gyral.cells.torch_layer import TorchLayerCell
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.ops import gated
from gyral.ops.fast_slow import SubCell
from gyral.ops.zoneout import zoneout as apply_zoneout

INITIALIZATIONS = ("torch", "orthogonal")


class Constants(NamedTuple):
    """Masks of the hidden vector, and the zoneout mask (…, B, N) of the cell vector or None."""

    masks: DropoutMasks
    zoneout_cell: Tensor | None


class LSTMCell(TorchLayerCell, SubCellMixin):
    """LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), the variant of `torch.nn.LSTM`.

        [i; f; g; o] = W_ih x_t + b_ih + W_hh h_{t−1} + b_hh    input gate, forget gate, candidate, output gate
        c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g)
        h_t = σ(o) ⊙ tanh(c_t)

    The gate order is that of torch: i, f, g, o. There are no peepholes. Layer normalization acts on each of i, f, g, o
    before its nonlinearity, and on c_t before the tanh of h_t.

    The fused path is the layer of torch if it supports all options, else the kernels "lstm" and "normalized_lstm" of
    `gyral.ops.gated`.

    Parameters: see `gyral.cells.torch_layer.TorchLayerCell`; `initialization` determines their values.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        bias: Whether the gates have biases.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016), with gain 1 and bias 0 at the start.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`; zoneout acts on h.
        zoneout_cell: Zoneout probability, in [0, 1), of c in the state; h_t uses the new c (Krueger et al. 2017,
            equation 4).
        initialization: "torch": every weight and bias is uniform in ±1/√N. "orthogonal": the kernels of each gate are
            orthogonal; biases are 0, except 1 in the forget gate, which is the bias of its normalization if there is
            one.

    Raises:
        OptionError: A size is below 1, or an option is out of bounds or has another type.
    """

    class State(NamedTuple):
        """Hidden and cell vectors, both (B, N)."""

        hidden: Tensor
        cell: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        layer_norm: bool = False,
        zoneout: float = 0.0,
        zoneout_cell: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "torch",
    ) -> None:
        check_integer("input_size", input_size)
        check_integer("hidden_size", hidden_size)
        super().__init__(
            nn.LSTM(input_size, hidden_size, bias=check_boolean("bias", bias)),
            layer_norm=layer_norm,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
        )
        self.zoneout_cell = check_real("zoneout_cell", zoneout_cell, minimum=0, below=1)
        self.norm_gates = self.normalization(4)
        self.norm_cell = self.normalization(1)
        if check_choice("initialization", initialization, INITIALIZATIONS) == "orthogonal":
            self.make_orthogonal()

    @torch.no_grad()
    def make_orthogonal(self) -> None:
        """Set the weights to `initialization="orthogonal"`."""
        size = self.hidden_size
        for name, parameter in self.layer.named_parameters():
            if name.startswith("weight"):
                for kernel in parameter.split(size):
                    nn.init.orthogonal_(kernel)
            else:
                parameter.zero_()
        if isinstance(self.norm_gates, LayerNorms):
            self.norm_gates.bias[1] = 1.0
        elif self.layer.bias:
            self.layer.get_parameter("bias_ih_l0")[size : 2 * size] = 1.0

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

    def fused_unsupported_reason(self) -> str | None:
        layer_reason, kernel_reason = super().fused_unsupported_reason(), self.subcell_unsupported_reason()
        return None if layer_reason is None or kernel_reason is None else f"{layer_reason}, and {kernel_reason}"

    def fused(self, inputs: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        if super().fused_unsupported_reason() is None:
            return super().fused(inputs, state, lengths)
        options = self._kernel_options(self.sequence_constants(*inputs.shape[:2]))
        outputs, hidden, cell = gated.run(
            options.pop("kind"), inputs, *self._kernel_weights(), state.hidden, state.cell, lengths=lengths, **options
        )
        assert cell is not None
        return outputs, self.State(hidden, cell)

    def subcell_unsupported_reason(self) -> str | None:
        return gated.unsupported_reason(self._parameters_of("hh")[0])

    def as_subcell(self, constants: Constants) -> SubCell:
        return SubCell(partial(gated.Problem, **self._kernel_options(constants)), *self._kernel_weights())

    def _kernel_weights(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
        """Return weight_ih, the sum of both biases, weight_hh, and the normalizations' gains and biases in one row."""
        weight_ih, bias_ih = self._parameters_of("ih")
        weight_hh, bias_hh = self._parameters_of("hh")
        bias = None if bias_ih is None or bias_hh is None else bias_ih + bias_hh
        norms = [p.flatten() for part in (self.norm_gates, self.norm_cell) for p in part.parameters()]
        return weight_ih, bias, weight_hh, torch.cat(norms) if norms else None

    def _kernel_options(self, constants: Constants) -> dict[str, Any]:
        """Return the fields of `gyral.ops.gated.Problem` other than weights and states."""
        masks = constants.masks
        return {
            "kind": "normalized_lstm" if self.layer_norm else "lstm",
            "keep": kernel_zoneout(masks.zoneout, self.zoneout),
            "keep_cell": kernel_zoneout(constants.zoneout_cell, self.zoneout_cell),
            "drop": None if masks.recurrent_dropout is None else masks.recurrent_dropout.value,
            "units": self.hidden_size,
            "chunk": 1,
        }
