"""Long short-term memory."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.base import DropoutMasks, LayerCell, LayerNorms
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.ops import gated
from gyral.ops.dropout import zoneout as zone_out
from gyral.ops.fast_slow.sequence import SubCell

INITIALIZATIONS = ("torch", "orthogonal")


class Constants(NamedTuple):
    """Masks of the hidden vector, and the zoneout mask of the cell vector (…, B, N), None where there is none."""

    masks: DropoutMasks
    keep_cell: Tensor | None


class LSTMCell(LayerCell):
    """LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), as `torch.nn.LSTM` has it.

    Gates in torch's order i, f, g, o, without peepholes:
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g), h_t = σ(o) ⊙ tanh(c_t).
    With layer normalization each gate's i, f, g, o is normalized, and c_t where h_t takes its tanh.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        bias: whether the gates have biases.
        layer_norm: normalize (Ba et al. 2016).
        zoneout, recurrent_dropout: of `gyral.cells.base.RecurrentCell`; zoneout is that of h.
        zoneout_cell: the zoneout probability of c, in [0, 1), as it is carried on (Krueger et al. 2017, equation 4).
        initialization: "torch": every weight and bias uniform in ±1/√N; "orthogonal": each gate's kernels orthogonal,
            biases zero but for 1 in the forget gate, after its normalization where there is one.

    The fused path is torch's layer where it has all options, else kind "lstm" or "normalized_lstm" of
    `gyral.ops.gated.sequence`.

    Raises:
        OptionError: a size below 1, an option out of its bounds or of another type.
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
        """Set the weights as `initialization="orthogonal"` says."""
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
        return Constants(self.draw_masks(*shape), self.draw_keep(self.zoneout_cell, *shape))

    def step(self, projected: Tensor, state: State, constants: Constants) -> tuple[Tensor, State]:
        gates = self.norm_gates(projected + self.recur(state.hidden, constants.masks))
        write, forget, candidate, output = gates.chunk(4, dim=-1)
        cell = forget.sigmoid() * state.cell + write.sigmoid() * candidate.tanh()
        hidden = output.sigmoid() * torch.tanh(self.norm_cell(cell))
        hidden = self.apply_zoneout(hidden, state.hidden, constants.masks)
        if self.zoneout_cell > 0:  # of what is carried on; h has seen the whole of the new c
            cell = zone_out(cell, state.cell, self.zoneout_cell if constants.keep_cell is None else constants.keep_cell)
        return hidden, self.State(hidden, cell)

    def fused_unsupported_reason(self) -> str | None:
        # torch's layer where it has all options, else our kernels
        missing, ours = super().fused_unsupported_reason(), self.subcell_unsupported_reason()
        return None if missing is None or ours is None else f"{missing}, and {ours}"

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
        """Return weight_ih, the sum of both biases, weight_hh, and all that normalizes in one row."""
        weight_ih, bias_ih = self._parameters_of("ih")
        weight_hh, bias_hh = self._parameters_of("hh")
        bias = None if bias_ih is None or bias_hh is None else bias_ih + bias_hh
        norms = [p.flatten() for part in (self.norm_gates, self.norm_cell) for p in part.parameters()]
        return weight_ih, bias, weight_hh, torch.cat(norms) if norms else None

    def _kernel_options(self, constants: Constants) -> dict[str, Any]:
        """Return the fields of `gyral.ops.gated.sequence.Problem` that are no weights and no states."""
        masks = constants.masks
        return {
            "kind": "normalized_lstm" if self.layer_norm else "lstm",
            "keep": (self.zoneout or None) if masks.keep is None else masks.keep,
            "keep_cell": (self.zoneout_cell or None) if constants.keep_cell is None else constants.keep_cell,
            "drop": None if masks.drop is None else masks.drop.value,
            "units": self.hidden_size,
            "chunk": 1,
        }
