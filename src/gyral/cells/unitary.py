"""What the cells with a unitary recurrence share."""

import math
from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DropoutMasks, HiddenState, RecurrentCell
from gyral.core.errors import OptionError
from gyral.ops import gated, unitary
from gyral.ops.fast_slow.sequence import SubCell
from gyral.ops.scan import Shared


class Constants(NamedTuple):
    """Random masks, and what `operator` returned."""

    masks: DropoutMasks
    operator: Shared


class EUNN(nn.Module):
    """The matrix D F_L ⋯ F_1 of Jing et al. (ICML 2017), without D where it is real; see `gyral.ops.unitary.rotations`.

    Parameters, all uniform in ±π: `theta` (pairs,); of a complex matrix also `phi` (pairs,) and `omega` (N,),
    D = diag(e^{iω}).

    Args:
        size: N ≥ 1.
        capacity: L, layers that pair neighbours, from 1 to N, which is full capacity; "fft": ⌈log₂ N⌉ layers that pair
            i with i + 2^k.
        is_complex: whether there are φ and D.

    Raises:
        OptionError: another capacity.
    """

    partner: Tensor
    angle: Tensor
    first: Tensor

    def __init__(self, size: int, capacity: int | str, is_complex: bool) -> None:
        super().__init__()
        if capacity == "fft":
            pairing = unitary.fft_pairing(size)
        elif isinstance(capacity, int) and not isinstance(capacity, bool) and 1 <= capacity <= size:
            pairing = unitary.tunable_pairing(size, capacity)
        else:
            raise OptionError(f"capacity={capacity}: must be an integer from 1 to {size}, or fft")
        for name, tensor in pairing._asdict().items():  # made again from the options: no part of the weights
            self.register_buffer(name, tensor, persistent=False)
        self.theta = nn.Parameter(torch.empty(pairing.pairs).uniform_(-math.pi, math.pi))
        self.phi: nn.Parameter | None = None
        self.omega: nn.Parameter | None = None
        if is_complex:
            self.phi = nn.Parameter(torch.empty(pairing.pairs).uniform_(-math.pi, math.pi))
            self.omega = nn.Parameter(torch.empty(size).uniform_(-math.pi, math.pi))

    def forward(self) -> "Turns":
        """Return what the parameters make of the matrix, for `turn`."""
        pairing = unitary.Pairing(self.partner, self.angle, self.first)
        return Turns(unitary.rotations(pairing, self.theta, self.phi), self.omega)

    def phases(self) -> list[Tensor]:
        """Return all angles."""
        return list(self.parameters())


class Turns(NamedTuple):
    """Layers of rotations and, for a complex matrix, the angles ω (N,) of D."""

    layers: unitary.Rotations
    omega: Tensor | None


def turn(turns: Turns, vectors: Tensor) -> Tensor:
    """Return D F_L ⋯ F_1 z for vectors z (…, N)."""
    vectors = unitary.rotate(vectors, turns.layers)
    return vectors if turns.omega is None else unitary.phase(vectors, turns.omega)


class UnitaryCell(RecurrentCell):
    """h_t = modReLU(W h_{t−1} + V x_t; b) with a unitary W, modReLU(z; b) = ReLU(|z| + b) z/|z|.

    The state of a complex cell holds N complex numbers as 2N real ones, real parts before imaginary parts, and that is
    its output. A subclass says how W is made of parameters and applied: at each step, by the reference. The fused path
    builds W once a sequence, for a product of matrices takes less time than many small operations.

    Parameters: `weight_ih` V (2N, X), or (N, X) for a real cell, Xavier-uniform; `bias` b (N,), zero.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, is_complex: bool, zoneout: float, recurrent_dropout: float
    ) -> None:
        super().__init__(input_size, hidden_size, zoneout=zoneout, recurrent_dropout=recurrent_dropout)
        self.is_complex = is_complex
        self.output_size = 2 * hidden_size if is_complex else hidden_size
        self.weight_ih = nn.Parameter(nn.init.xavier_uniform_(torch.empty(self.output_size, input_size)))
        self.bias = nn.Parameter(torch.zeros(hidden_size))

    @abstractmethod
    def operator(self) -> Any:
        """Return what the parameters make of W, for `apply`."""

    @abstractmethod
    def apply_operator(self, operator: Any, vectors: Tensor) -> Tensor:
        """Return W z for vectors z (…, N), complex where the cell is."""

    def matrix(self) -> Tensor:
        """Return W (N, N)."""
        operator = self.operator()
        like = self.bias if not self.is_complex else torch.complex(self.bias, self.bias)
        return unitary.rows(lambda vectors: self.apply_operator(operator, vectors), self.hidden_size, like).T

    def init_state(self, batch_size: int) -> HiddenState:
        return HiddenState(self.zeros(batch_size, self.output_size))

    def project(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight_ih)

    def sequence_constants(self, *shape: int) -> Constants:
        return Constants(self.draw_masks(*shape), Shared(self.operator()))

    def spread(self, mask: Tensor) -> Tensor:
        return torch.cat((mask, mask), dim=-1) if self.is_complex else mask  # a complex unit is kept or dropped as one

    def step(self, projected: Tensor, state: HiddenState, constants: Constants) -> tuple[Tensor, HiddenState]:
        hidden = self.apply_recurrent_dropout(state.hidden, constants.masks)
        operator = constants.operator.value
        if self.is_complex:
            turned = self.apply_operator(operator, torch.complex(*hidden.chunk(2, dim=-1)))
            hidden = projected + torch.cat((turned.real, turned.imag), dim=-1)
        else:
            hidden = projected + self.apply_operator(operator, hidden)
        modrelu = unitary.complex_modrelu if self.is_complex else unitary.modrelu
        hidden = self.apply_zoneout(modrelu(hidden, self.bias), state.hidden, constants.masks)
        return hidden, HiddenState(hidden)

    def fused_unsupported_reason(self) -> str | None:
        if self.recurrent_dropout > 0:
            return "recurrent_dropout has no fused path"
        return gated.unsupported_reason(self.bias)

    def subcell_unsupported_reason(self) -> str | None:
        return self.fused_unsupported_reason()

    def as_subcell(self, constants: Constants) -> SubCell:
        keep = (self.zoneout or None) if constants.masks.keep is None else constants.masks.keep
        options: dict[str, Any] = {"kind": self._kind(), "keep": keep, "keep_cell": None, "drop": None}
        problem = partial(gated.Problem, units=self.hidden_size, chunk=1, **options)
        return SubCell(problem, self.weight_ih, None, self._real_matrix(), self.bias)

    def _kind(self) -> str:
        return "complex_modrelu" if self.is_complex else "modrelu"

    def _real_matrix(self) -> Tensor:
        """Return W as it acts on real parts before imaginary parts: (P + iQ)(a + ib) = (Pa − Qb) + i(Qa + Pb)."""
        weight = self.matrix()
        if not self.is_complex:
            return weight
        return torch.cat((torch.cat((weight.real, -weight.imag), 1), torch.cat((weight.imag, weight.real), 1)))

    def fused(self, inputs: Tensor, state: HiddenState, lengths: Tensor | None) -> tuple[Tensor, HiddenState]:
        outputs, hidden, _ = gated.run(
            self._kind(),
            inputs,
            self.weight_ih,
            None,
            self._real_matrix(),
            self.bias,
            state.hidden,
            keep=self.fused_keep(*inputs.shape[:2]),
            lengths=lengths,
            units=self.hidden_size,
        )
        return outputs, HiddenState(hidden)
