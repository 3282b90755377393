"""Base class of the cells with a unitary recurrent matrix, and the matrix of EURNN and GORU."""

import math
from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DropoutMasks, HiddenState, RecurrentCell, kernel_zoneout
from gyral.cells.subcell import SubCellMixin
from gyral.core.errors import OptionError
from gyral.ops import gated, unitary
from gyral.ops.fast_slow import SubCell
from gyral.ops.scan import Shared


class Constants(NamedTuple):
    """Random masks, and the return value of `operator`."""

    masks: DropoutMasks
    operator: Shared


class EUNN(nn.Module):
    """The unitary matrix D F_L ⋯ F_1 of Jing et al. (ICML 2017); a real matrix has no D. See `unitary.rotations`.

    Parameters, all uniform in ±π: `theta` (pairs,); for a complex matrix also `phi` (pairs,) and `omega` (N,), with
    D = diag(e^{iω}).

    Args:
        size: N ≥ 1.
        capacity: L, from 1 to N, layers that pair neighbours (N is full capacity), or "fft": ⌈log₂ N⌉ layers that pair
            i with i + 2^k.
        is_complex: Whether there are φ and D.

    Raises:
        OptionError: The capacity is not allowed.
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
            raise OptionError("capacity", capacity, f"must be an integer from 1 to {size}, or fft")
        for name, tensor in pairing._asdict().items():  # not saved: the options determine them
            self.register_buffer(name, tensor, persistent=False)
        self.theta = nn.Parameter(torch.empty(pairing.pairs).uniform_(-math.pi, math.pi))
        self.phi: nn.Parameter | None = None
        self.omega: nn.Parameter | None = None
        if is_complex:
            self.phi = nn.Parameter(torch.empty(pairing.pairs).uniform_(-math.pi, math.pi))
            self.omega = nn.Parameter(torch.empty(size).uniform_(-math.pi, math.pi))

    def forward(self) -> "EUNNFactors":
        """Return the factors of the matrix, for `apply_eunn`."""
        pairing = unitary.Pairing(self.partner, self.angle, self.first)
        return EUNNFactors(unitary.rotations(pairing, self.theta, self.phi), self.omega)

    def phases(self) -> list[Tensor]:
        """Return all angles."""
        return list(self.parameters())


class EUNNFactors(NamedTuple):
    """Layers F of rotations and, for a complex matrix, the angles ω (N,) of D."""

    layers: unitary.Rotations
    omega: Tensor | None


def apply_eunn(factors: EUNNFactors, vectors: Tensor) -> Tensor:
    """Return D F_L ⋯ F_1 z for vectors z (…, N)."""
    vectors = unitary.rotate(vectors, factors.layers)
    return vectors if factors.omega is None else unitary.phase(vectors, factors.omega)


class UnitaryCell(RecurrentCell, SubCellMixin):
    """h_t = modReLU(W h_{t−1} + V x_t; b) with a unitary W and modReLU(z; b) = ReLU(|z| + b) z/|z|.

    The state of a complex cell holds N complex numbers as 2N real ones, real parts before imaginary parts; the output
    is the same vector. A subclass defines how W depends on its parameters and how W is applied. The reference applies W
    at each step. The fused path builds W once per sequence, since one matrix product is faster than many small
    operations.

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
        """Return W in the form that `apply_operator` takes."""

    @abstractmethod
    def apply_operator(self, operator: Any, vectors: Tensor) -> Tensor:
        """Return W z for vectors z (…, N), which are complex if the cell is."""

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

    def expand_mask(self, mask: Tensor) -> Tensor:
        return torch.cat((mask, mask), dim=-1) if self.is_complex else mask  # both parts of a unit have one mask

    def step(self, projected: Tensor, state: HiddenState, constants: Constants) -> tuple[Tensor, HiddenState]:
        hidden = self.apply_recurrent_dropout(state.hidden, constants.masks)
        operator = constants.operator.value
        if self.is_complex:
            product = self.apply_operator(operator, torch.complex(*hidden.chunk(2, dim=-1)))
            hidden = projected + torch.cat((product.real, product.imag), dim=-1)
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
        keep = kernel_zoneout(constants.masks.zoneout, self.zoneout)
        options: dict[str, Any] = {"kind": self._kind(), "keep": keep, "keep_cell": None, "drop": None}
        problem = partial(gated.Problem, units=self.hidden_size, chunk=1, **options)
        return SubCell(problem, self.weight_ih, None, self._real_matrix(), self.bias)

    def _kind(self) -> str:
        return "complex_modrelu" if self.is_complex else "modrelu"

    def _real_matrix(self) -> Tensor:
        """Return the matrix that acts as W on [real; imaginary]: (P + iQ)(a + ib) = (Pa − Qb) + i(Qa + Pb)."""
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
            keep=self.draw_fused_zoneout(*inputs.shape[:2]),
            lengths=lengths,
            units=self.hidden_size,
        )
        return outputs, HiddenState(hidden)
