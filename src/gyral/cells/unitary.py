"""Base class of the cells with a unitary recurrent matrix, and the matrix of EURNN and GORU."""

import math
from abc import abstractmethod
from dataclasses import field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DropoutMasks, HiddenState, RegularizedCell, kernel_zoneout
from gyral.cells.initialization import uniform_
from gyral.cells.subcell import SubCellMixin
from gyral.core.compat import assume_constant_result
from gyral.core.errors import OptionError, UserError
from gyral.ops import gated, unitary
from gyral.ops.compiler import is_exporting_to_onnx
from gyral.ops.fast_slow import SubCell
from gyral.ops.scan import Shared


class Constants(NamedTuple):
    """Random masks, and the return value of `operator`."""

    masks: DropoutMasks
    operator: Shared


class EUNN(nn.Module):
    """The unitary matrix D F_L ⋯ F_1 of Jing et al. (ICML 2017); a real matrix has no D. See `unitary.rotations`.

    Parameters, all uniform in ±π: `theta` (pairs,); for a complex matrix also `phi` (pairs,) and `omega` (N,), with
    D = diag(e^{iω}). The constructor leaves them without values; the cell calls `reset_parameters`.

    Args:
        size: N ≥ 1.
        capacity: L, from 1 to N, layers that pair neighbours (N is full capacity), or "fft": ⌈log₂ N⌉ layers that pair
            i with i + 2^k.
        is_complex: Whether there are φ and D.

    Raises:
        OptionError: The capacity is not allowed.
    """

    no_decay_parameters = ("theta", "phi", "omega")  # see `RecurrentCell.no_decay_parameters`

    def __init__(self, size: int, capacity: int | str, is_complex: bool) -> None:
        super().__init__()
        layers = check_capacity(capacity, size)
        pairing = unitary.fft_pairing(size) if layers is None else unitary.tunable_pairing(size, layers)
        # not buffers: `to_empty` would leave them without values, and a state dict does not have them
        self._pairing = self._moved_pairing = pairing
        self.theta = nn.Parameter(torch.empty(pairing.pairs))
        self.phi: nn.Parameter | None = None
        self.omega: nn.Parameter | None = None
        if is_complex:
            self.phi = nn.Parameter(torch.empty(pairing.pairs))
            self.omega = nn.Parameter(torch.empty(size))

    def reset_parameters(self) -> None:
        """Reset all angles."""
        for angles in self.parameters():
            uniform_(angles, math.pi)

    def forward(self, dtype: torch.dtype | None = None) -> "EUNNFactors":
        """Return the factors of the matrix, for `apply_eunn`, in a dtype, of a real matrix; None: of the angles."""
        theta = self.theta if dtype is None else self.theta.to(dtype)
        return EUNNFactors(unitary.rotations(self.pairing(), theta, self.phi), self.omega)

    @assume_constant_result  # a compiled graph holds the indices instead of copying them at each call
    def pairing(self) -> unitary.Pairing:
        """Return the pairs that the layers rotate, on the device of the angles; copied there at the first call."""
        device = self.theta.device
        if self._moved_pairing.partner.device != device:
            with torch.inference_mode(False):  # training could not save inference tensors for the backward pass
                moved = unitary.Pairing(*(indices.to(device) for indices in self._pairing))
            if torch.compiler.is_compiling():  # the tensors may be symbolic
                return moved
            self._moved_pairing = moved
        return self._moved_pairing

    def phases(self) -> list[Tensor]:
        """Return all angles."""
        return list(self.parameters())


def check_capacity(capacity: int | str, size: int) -> int | None:
    """Return the number of layers of a matrix (N, N), None for "fft"; raise `OptionError` if it is not allowed."""
    if capacity == "fft":
        return None
    if isinstance(capacity, int) and not isinstance(capacity, bool) and 1 <= capacity <= size:
        return capacity
    raise OptionError("capacity", capacity, f"must be an integer from 1 to {size}, or fft")


class EUNNFactors(NamedTuple):
    """Layers F of rotations and, for a complex matrix, the angles ω (N,) of D."""

    layers: unitary.Rotations
    omega: Tensor | None


def apply_eunn(factors: EUNNFactors, vectors: Tensor) -> Tensor:
    """Return D F_L ⋯ F_1 z for vectors z (…, N)."""
    vectors = unitary.rotate(vectors, factors.layers)
    return vectors if factors.omega is None else unitary.phase(vectors, factors.omega)


class UnitaryCell(RegularizedCell, SubCellMixin):
    """h_t = modReLU(W h_{t−1} + V x_t; b) with a unitary W and modReLU(z; b) = ReLU(|z| + b) z/|z|.

    The state of a complex cell holds N complex numbers as 2N real ones, real parts before imaginary parts; the output
    is the same vector. A subclass defines how W depends on its parameters and how W is applied. The reference applies W
    at each step. The fused path builds W once per sequence, since one matrix product is faster than many small
    operations, unless a subclass overrides `recurrent_weight`.

    Parameters: `weight_ih` V (2N, X), or (N, X) for a real cell, Xavier-uniform; `bias` b (N,), zero; with
    `learned_initial_state` also `initial_state` (2N,), or (N,), uniform in ±√(3/(2N)). Those of W follow.

    State:
        One tensor (B, 2N): the N real parts, then the N imaginary parts; (B, N) for a real cell.

    Args:
        initialization: "default" or "authors", for the subclass.
        learned_initial_state: Whether the hidden vector before the first step is a parameter, uniform in ±√(3/(2N)) at
            the start, as in the authors' code of uRNN and full-capacity uRNN, instead of zero.

    Attributes:
        is_complex: Whether the hidden vector is complex.
    """

    kernel_operator = gated.OPERATOR

    is_complex: bool = field(init=False, default=True)
    initialization: str = field(init=False, default="default")
    learned_initial_state: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.output_size = 2 * self.hidden_size if self.is_complex else self.hidden_size
        self.weight_ih = nn.Parameter(torch.empty(self.output_size, self.input_size))
        self.bias = nn.Parameter(torch.empty(self.hidden_size))
        self.initial_state = nn.Parameter(torch.empty(self.output_size)) if self.learned_initial_state else None
        self.create_operator()
        self.reset_parameters()

    @abstractmethod
    def create_operator(self) -> None:
        """Create the parameters of W."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight_ih)
        self.bias.zero_()
        if self.initial_state is not None:
            uniform_(self.initial_state, math.sqrt(1.5 / self.hidden_size))

    @abstractmethod
    def operator(self) -> Any:
        """Return W in the form that `apply_operator` takes, a real one in the dtype `state_dtype`.

        Where rounding makes it longer than 1, it makes the hidden vector longer at every step.
        """

    @abstractmethod
    def apply_operator(self, operator: Any, vectors: Tensor) -> Tensor:
        """Return W z for vectors z (…, N), which are complex if the cell is."""

    def matrix(self) -> Tensor:
        """Return W (N, N)."""
        operator = self._checked_operator()
        like = self.bias.to(self.state_dtype) if not self.is_complex else torch.complex(self.bias, self.bias)
        return unitary.rows(lambda vectors: self.apply_operator(operator, vectors), self.hidden_size, like).T

    def _checked_operator(self) -> Any:
        """Return `operator()`.

        Raises:
            UserError: The cell is complex, and its parameters have a dtype for which torch has no complex arithmetic,
                or the cell is exported to ONNX.
        """
        if self.is_complex and is_exporting_to_onnx():
            raise UserError(f"{type(self).__name__} is complex, and cannot be exported to ONNX")
        if self.is_complex and self.bias.dtype not in (torch.float32, torch.float64):
            name, dtype = type(self).__name__, str(self.bias.dtype).removeprefix("torch.")
            raise UserError(f"{name} is complex and supports the dtypes float32 and float64, not {dtype}")
        return self.operator()

    def init_state(self, batch_size: int) -> HiddenState:
        if self.initial_state is not None:
            return HiddenState(self.initial_state.repeat(batch_size, 1).to(self.state_dtype))
        return HiddenState(self.zeros(batch_size, self.output_size, dtype=self.state_dtype))

    def project(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight_ih)

    def sequence_constants(self, *shape: int) -> Constants:
        return Constants(self.draw_masks(*shape), Shared(self._checked_operator()))

    def expand_mask(self, mask: Tensor) -> Tensor:
        return torch.cat((mask, mask), dim=-1) if self.is_complex else mask  # both parts of a unit have one mask

    def step(self, projected: Tensor, state: HiddenState, constants: Constants) -> tuple[Tensor, HiddenState]:
        old = state.hidden.to(self.state_dtype)
        hidden = self.apply_recurrent_dropout(old, constants.masks)
        operator = constants.operator.value
        if self.is_complex:
            product = self.apply_operator(operator, torch.complex(*hidden.chunk(2, dim=-1)))
            hidden = projected + torch.cat((product.real, product.imag), dim=-1)
        else:
            hidden = projected + self.apply_operator(operator, hidden)
        modrelu = unitary.complex_modrelu if self.is_complex else unitary.modrelu
        hidden = self.apply_zoneout(modrelu(hidden, self.bias.to(self.state_dtype)), old, constants.masks)
        return self.to_parameter_dtype(hidden), HiddenState(hidden)

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        if self.recurrent_dropout > 0:
            return "recurrent_dropout has no fused path"
        return gated.unsupported_reason(self.bias)

    def subcell_unsupported_reason(self) -> str | None:
        if self.initial_state is not None:
            return "learned_initial_state has no fused path within another cell"
        return self.fused_unsupported_reason()

    def as_subcell(self, constants: Constants) -> SubCell:
        keep = kernel_zoneout(constants.masks.zoneout, self.zoneout)
        weights = self.weight_ih, None, self._real_matrix(), self.bias
        return SubCell(self._kind(), *weights, keep=keep, units=self.hidden_size)

    def recurrent_weight(self) -> tuple[Tensor, Tensor | None]:
        """Return the arguments `weight_hh` and `partner` of `gyral.ops.gated.gated`: here the matrix and None."""
        return self._real_matrix(), None

    def _kind(self) -> str:
        return "complex_modrelu" if self.is_complex else "modrelu"

    def _real_matrix(self) -> Tensor:
        """Return the matrix that acts as W on [real; imaginary]: (P + iQ)(a + ib) = (Pa − Qb) + i(Qa + Pb)."""
        weight = self.matrix()
        if not self.is_complex:
            return weight
        return torch.cat((torch.cat((weight.real, -weight.imag), 1), torch.cat((weight.imag, weight.real), 1)))

    def is_fused_recordable(self, starts: bool) -> bool:
        return True

    def fused(
        self, inputs: Tensor, state: HiddenState, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, HiddenState]:
        return self._fused(*self.recurrent_weight(), inputs, state, lengths, starts)

    def fused_from(
        self, constants: Tensor, inputs: Tensor, state: HiddenState, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, HiddenState]:
        return self._fused(constants, None, inputs, state, lengths, starts)

    def _fused(
        self,
        weight: Tensor,
        partner: Tensor | None,
        inputs: Tensor,
        state: HiddenState,
        lengths: Tensor | None,
        starts: Tensor | None,
    ) -> tuple[Tensor, HiddenState]:
        options: dict[str, Any] = {"units": self.hidden_size, "fresh": self.initial_state, "partner": partner}
        options["keep"] = self.draw_fused_zoneout(*inputs.shape[:2])
        parts = self.weight_ih, None, weight, self.bias, state.hidden
        outputs, hidden, _ = gated.gated(self._kind(), inputs, *parts, lengths=lengths, starts=starts, **options)
        return outputs, HiddenState(hidden)
