"""The base classes of layers with the delta rule: rates of erasing and writing, decay and gate."""

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.initialization import AUTHORS, draw_step_sizes_, draw_wide
from gyral.cells.linear_attention import NormalizedMemoryCell, Operands, Readout, linear
from gyral.core.options import OneOf, PositiveInt, Range, derived
from gyral.ops.autograd import outside_autocast
from gyral.ops.delta.naive import EPSILON

DEVIATION = 0.02  # of the initial weights in the published models
LARGEST_RATE = 16.0


class Projected(NamedTuple):
    """Projected inputs, with leading dimensions (…).

    Attributes:
        values: [q; k; v] before the convolution, (…, C).
        erase: Rates at which keys erase, (…, n, H) or for each key channel (…, n, H, K).
        write: Rates at which values are written, (…, n, H), or for each value channel (…, n, H, V) if `erase` has K.
        decay: Logarithms of the decay, (…, H) or (…, H, K), or None.
        gate: Logits of the factors of the outputs (…, H V), or None.
    """

    values: Tensor
    erase: Tensor
    write: Tensor
    decay: Tensor | None
    gate: Tensor | None


class DeltaRuleCell(NormalizedMemoryCell):
    """Base class of cells whose memory matrix S (K, V) of each head is changed by the delta rule.

        [q; k_1 … k_n; v_1 … v_n] = SiLU(conv(W_ih x))        depthwise and causal; zeros before the first step
        S ← e^{γ} ⊙ S                                         decay, unless the cell has none
        S ← S + k̂_j (w_j ⊙ v_j − Sᵀ (e_j ⊙ k̂_j))ᵀ             for j = 1 … n, the micro-steps of a step
        y = RMS(Sᵀ q̂ / √K) ⊙ φ(gate)                          RMS over the V numbers of a head, with a gain; ε = 10⁻⁵

    with k̂ = k / √(Σ k² + 10⁻⁶), and q̂ in the same way. A subclass computes the rates e and w, γ and the gate before its
    activation φ in `rates` from further rows of W_ih. See `MatrixMemoryCell` for sizes.

    Args:
        heads: H.
        kernel_size: ≥ 2, the number of steps in the window of the convolution; None: without a convolution.
        negative_eigenvalues: Whether e, or β of cells with one rate, is twice as large, so that eigenvalues of the
            transition of S lie in (−1, 1) instead of (0, 1), which parity and permutations need (Grazzi et al., ICLR
            2025).
        initialization: Of matrices and of the convolution; "default": uniform in ±1/√columns, as `torch.nn.Linear`;
            "authors": normal with deviation 0.02, as the published models, whose widths are above 1,000.

    Attributes:
        micro_steps: n.
        gate_activation: φ, see `gyral.ops.gated_norm.naive.gated_norm`.
        precise_gate: Whether the rows of the gate are in one product with those of rates and decay, in float32.
    """

    micro_steps = 1
    gate_activation: ClassVar[str] = "silu"
    precise_gate = False

    heads: PositiveInt = 4
    key_size: PositiveInt = derived(default=None)
    kernel_size: Annotated[int, Range(2)] | None = 4
    negative_eigenvalues: bool = False
    initialization: Annotated[str, OneOf(AUTHORS)] = "default"

    def __post_init__(self) -> None:
        super().__post_init__()
        keys = self.heads * self.key_size
        sizes = keys, self.micro_steps * keys, self.micro_steps * self.width  # of q, k and v
        self.rows = self.further_rows()
        self.weight_ih = nn.Parameter(torch.empty(sum(sizes) + sum(self.rows.values()), self.input_size))
        self.weight_norm = nn.Parameter(torch.empty(self.value_size))
        self.create_convolution(sizes, self.kernel_size)
        self.create_rates()
        self.reset_parameters()

    @abstractmethod
    def create_rates(self) -> None:
        """Create the parameters that rates, decay and gate have besides W_ih."""

    @abstractmethod
    def further_rows(self) -> dict[str, int]:
        """Return the numbers of rows of W_ih after those of q, k and v, by name, those of "gate" first."""

    @abstractmethod
    def rates(self, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return e, w, γ and the gate, as `Projected` has them, from the further rows of W_ih x (…, count)."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.initialization == "authors":
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    parameter.normal_(std=DEVIATION)

    def project(self, inputs: Tensor) -> Projected:
        plain = 0 if self.precise_gate else self.rows["gate"]
        precise = {name: count for name, count in self.rows.items() if self.precise_gate or name != "gate"}
        weights = self.weight_ih.split([self.channels, plain, sum(precise.values())])
        # each in one product: parts of a larger one would be copied
        values = linear(inputs, weights[0])
        found = self.precise_linear(inputs, weights[2]).split(list(precise.values()), dim=-1)
        rows = dict(zip(precise, found, strict=True))
        if plain:
            rows["gate"] = linear(inputs, weights[1])
        with outside_autocast(inputs.device):
            return Projected(values, *self.rates(rows))

    def to_erase(self, logits: Tensor) -> Tensor:
        """Return the rates of erasing for their logits."""
        rates = torch.sigmoid(logits)
        return 2 * rates if self.negative_eigenvalues else rates

    def activate_without_convolution(self, values: Tensor) -> Tensor:
        return F.silu(values)

    def operands(self, projected: Projected, values: tuple[Tensor, ...]) -> Operands:
        q, k, v = values
        q = q.unflatten(-1, (self.heads, self.key_size))
        k = k.unflatten(-1, (self.micro_steps, self.heads, self.key_size))
        v = v.unflatten(-1, (self.micro_steps, self.heads, self.value_size))
        _, erase, write, decay, _ = projected
        if erase.dim() < k.dim():
            return Operands(q, k, v, decay, erase, write, unit=True)
        # with the mean of the squares in place of their sum, unit vectors are √K times as long
        size, eps = self.key_size, EPSILON / self.key_size
        q, k = (F.rms_norm(each.to(self.state_dtype), (size,), eps=eps) for each in (q, k))
        k = k * size**-0.5
        return Operands(q / size, k, write * v, decay, erase * k)

    def readout(self, projected: Projected, values: tuple[Tensor, ...]) -> Readout:
        gate = None if projected.gate is None else self.to_parameter_dtype(projected.gate)
        return Readout(self.weight_norm, gate, size=self.value_size, activation=self.gate_activation)


class ScalarRatesCell(DeltaRuleCell):
    """Base class of layers with one rate β = e = w for each head and micro-step.

        β = σ(W_β x), or 2 σ(W_β x)
        γ = −exp(A_log) softplus(W_Δ x + b_Δ)       one for each head; or no decay
        gate = W_g x, with φ = SiLU, or no gate

    Parameters and initial values: `weight_ih` (rows, X), rows [q; k; v; g; β; Δ], of k and v those of micro-step 1
    first, and `weight_conv` (C, kernel_size), see `initialization`; `A_log` (H,), the logarithm of numbers that are
    uniform in [0, 16]; `bias_dt` (H,), the inverse of softplus at step sizes whose logarithm is uniform in
    [log 0.001, log 0.1]; `weight_norm` (V,), one.

    Args:
        gate: Whether there is a gate.
    """

    no_decay_parameters = ("A_log", "bias_dt")

    gate: bool = True

    @property
    @abstractmethod
    def has_decay(self) -> bool:
        """Whether there is a decay; an attribute of subclasses."""

    def create_rates(self) -> None:
        self.A_log = nn.Parameter(torch.empty(self.heads)) if self.has_decay else None
        self.bias_dt = nn.Parameter(torch.empty(self.heads)) if self.has_decay else None

    def further_rows(self) -> dict[str, int]:
        decay, gate = self.heads * self.has_decay, self.width * self.gate
        return {"gate": gate, "beta": self.micro_steps * self.heads, "dt": decay}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.A_log is not None and self.bias_dt is not None:
            draw_rates_(self.A_log, 0.0)
            draw_step_sizes_(self.bias_dt)

    def rates(self, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        beta = self.to_erase(rows["beta"]).unflatten(-1, (self.micro_steps, self.heads))
        decay = None
        if self.A_log is not None and self.bias_dt is not None:
            decay = -torch.exp(self.A_log.to(self.state_dtype)) * F.softplus(rows["dt"] + self.bias_dt)
        return beta, beta, decay, rows["gate"] if self.gate else None


@torch.no_grad()
def draw_rates_(logarithms: Tensor, smallest: float) -> None:
    """Fill a tensor with logarithms of numbers that are uniform between a number and 16."""
    logarithms.copy_(draw_wide(logarithms, smallest, LARGEST_RATE).clamp(min=math.exp(-20)).log())
