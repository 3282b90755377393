"""Gated orthogonal recurrent unit (GORU)."""

import math
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DropoutMasks, HiddenState, RegularizedCell
from gyral.cells.initialization import AUTHORS, uniform_
from gyral.cells.layer_norm import LayerNorms
from gyral.cells.subcell import SubCellMixin
from gyral.cells.unitary import EUNN, apply_eunn, check_capacity
from gyral.core.options import OneOf, PositiveFloat
from gyral.ops import gated, unitary
from gyral.ops.fast_slow import SubCell
from gyral.ops.scan import Shared


class Constants(NamedTuple):
    """Random masks, and the `EUNNFactors` of U."""

    masks: DropoutMasks
    operator: Shared


class GORUCell(RegularizedCell, SubCellMixin):
    """Gated orthogonal recurrent unit.

    GORU (Jing et al., "Gated orthogonal recurrent units: On learning to forget", 2017).

        r = σ(W_r h + U_r x + b_r)                          reset gate
        g = σ(W_g h + U_g x + b_g)                          update gate
        c = modReLU(r ⊙ (U h) + U_c x; b_c)                 candidate, U real orthogonal
        h' = g ⊙ h + (1 − g) ⊙ c

    with modReLU(z; b) = sign(z) ReLU(|z| + b). U = F_L ⋯ F_1 is a product of plane rotations, applied in O(L N) on the
    reference backend. The fused path builds U once per sequence and takes one matrix product per step.

    Parameters: `weight_ih` (3N, X), rows [U_r; U_g; U_c], and `weight_hh` (2N, N), rows [W_r; W_g], uniform in ±0.01;
    `bias` (3N,), b_r = 2, b_c = 2 and b_g according to `initialization`; `eunn.theta`, uniform in ±π, see
    `gyral.cells.unitary.EUNN`. With `layer_norm` also `norm_gates`, gain 1 and bias 0.

    Args:
        capacity: L, from 1 to N, layers of U that pair neighbours, or "fft": ⌈log₂ N⌉ layers that pair i with i + 2^k.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016, with gain and bias) to r and g before their
            sigmoids.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        initialization: "default": b_g = 0. "authors": b_g is uniform in ±√(3/N), the default of TensorFlow, as in the
            code of Dangovski et al. (TACL 2019; rdangovs/rotational-unit-of-memory on GitHub). The code of the paper
            on GORU (jingli9111/GORU-tensorflow) differs from it in b_c = 0.01.

    Example:
        >>> layer = GORU(16, 64, capacity="fft")
    """

    kernel_rows = ("r", "g", "c")
    kernel_operator = gated.OPERATOR

    capacity: int | str = 2
    layer_norm: bool = False
    layer_norm_eps: PositiveFloat = 1e-5
    initialization: Annotated[str, OneOf(AUTHORS)] = "default"

    def check(self) -> None:
        check_capacity(self.capacity, self.hidden_size)

    def __post_init__(self) -> None:
        size = self.hidden_size
        self.eunn = EUNN(size, self.capacity, is_complex=False)
        self.weight_ih = nn.Parameter(torch.empty(3 * size, self.input_size))
        self.weight_hh = nn.Parameter(torch.empty(2 * size, size))
        self.bias = nn.Parameter(torch.empty(3 * size))
        self.norm_gates = LayerNorms(2, size, self.layer_norm_eps) if self.layer_norm else nn.Identity()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.eunn.reset_parameters()
        uniform_(self.weight_ih, 0.01)
        uniform_(self.weight_hh, 0.01)
        reset, update, candidate = self.bias.chunk(3)
        reset.fill_(2.0)
        candidate.fill_(2.0)
        if self.initialization == "authors":
            uniform_(update, math.sqrt(3 / self.hidden_size))
        else:
            update.zero_()
        if isinstance(self.norm_gates, LayerNorms):
            self.norm_gates.reset()

    def init_state(self, batch_size: int) -> HiddenState:
        return HiddenState(self.zeros(batch_size, self.hidden_size))

    def project(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight_ih, self._gate_bias())

    def _gate_bias(self) -> Tensor:
        """Return the bias (3N,) with zeros instead of b_c, which is the bias of modReLU."""
        return F.pad(self.bias[: 2 * self.hidden_size], (0, self.hidden_size))

    def sequence_constants(self, *shape: int) -> Constants:
        # a matrix that is rounded to bfloat16 is not orthogonal
        return Constants(self.draw_masks(*shape), Shared(self.eunn(self.state_dtype)))

    def step(self, projected: Tensor, state: HiddenState, constants: Constants) -> tuple[Tensor, HiddenState]:
        gates = 2 * self.hidden_size
        old = self.apply_recurrent_dropout(state.hidden, constants.masks)
        recurrent = F.linear(old, self.weight_hh)
        rotated = self.to_parameter_dtype(apply_eunn(constants.operator.value, old.to(self.state_dtype)))
        input_gates, input_candidate = projected.split((gates, self.hidden_size), dim=-1)
        reset, update = torch.sigmoid(self.norm_gates(input_gates + recurrent)).chunk(2, dim=-1)
        candidate = unitary.modrelu(torch.addcmul(input_candidate, reset, rotated), self.bias[gates:])
        hidden = self.apply_zoneout(candidate + update * (state.hidden - candidate), state.hidden, constants.masks)
        return hidden, HiddenState(hidden)

    def forget_gate(self, projected: Tensor, state: HiddenState) -> Tensor:
        """Return the update gate g (B, N), which multiplies the old hidden vector."""
        gates = projected[..., : 2 * self.hidden_size] + F.linear(state.hidden, self.weight_hh)
        return torch.sigmoid(self.norm_gates(gates)).chunk(2, dim=-1)[1]

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        return gated.unsupported_reason(self.bias)

    def subcell_unsupported_reason(self) -> str | None:
        return self.fused_unsupported_reason()

    def as_subcell(self, constants: Constants) -> SubCell:
        options = self._kernel_options(constants.masks)
        return SubCell(options.pop("kind"), *self._kernel_weights(), **options)

    def _kernel_weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return w_ih, b, w_hh and extra of `gyral.ops.gated.gated`."""
        factors = self.eunn()
        matrix = unitary.rows(lambda vectors: apply_eunn(factors, vectors), self.hidden_size, self.bias).T
        norms = self.norm_gates.flat() if isinstance(self.norm_gates, LayerNorms) else []
        extra = torch.cat((self.bias[2 * self.hidden_size :], *norms))
        return self.weight_ih, self._gate_bias(), torch.cat((self.weight_hh, matrix)), extra

    def _kernel_options(self, masks: DropoutMasks) -> dict[str, Any]:
        return {
            "kind": "normalized_goru" if isinstance(self.norm_gates, LayerNorms) else "goru",
            **self.kernel_masks(masks),
            "units": self.hidden_size,
            "epsilon": self.layer_norm_eps,
        }

    def is_fused_recordable(self, starts: bool) -> bool:
        return True

    def fused(
        self, inputs: Tensor, state: HiddenState, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, HiddenState]:
        options = self._kernel_options(self.draw_masks(*inputs.shape[:2]))
        kind, weights = options.pop("kind"), self._kernel_weights()
        outputs, hidden, _ = gated.gated(
            kind, inputs, *weights, state.hidden, lengths=lengths, starts=starts, **options
        )
        return outputs, HiddenState(hidden)
