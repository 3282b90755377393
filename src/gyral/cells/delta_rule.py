"""The base classes of layers with the delta rule: projections, convolution, memory, norm and gate."""

import math
from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import RecurrentCell
from gyral.cells.initialization import AUTHORS, draw_step_sizes_
from gyral.core.checks import check_boolean, check_choice, check_integer
from gyral.ops.autograd import outside_autocast
from gyral.ops.convolution import convolution, window
from gyral.ops.delta import delta_scan, delta_step

NORM_EPSILON = 1e-5
UNIT_EPSILON = 1e-6  # of k / √(Σ k² + ε)
DEVIATION = 0.02  # of the initial weights in the published models
LARGEST_RATE = 16.0


class Projected(NamedTuple):
    """What the inputs determine, with leading dimensions (…).

    Attributes:
        values: [q; k; v] before convolution and SiLU, (…, C).
        erase: Rates at which keys erase, (…, n, H, 1) or for each key channel (…, n, H, K).
        write: Rates at which values are written, (…, n, H, 1) or for each value channel (…, n, H, V).
        decay: Logarithms of the decay, (…, H) or (…, H, K), or None.
        gate: Factors of the outputs (…, H, V), or None.
    """

    values: Tensor
    erase: Tensor
    write: Tensor
    decay: Tensor | None
    gate: Tensor | None


class DeltaRuleCell(RecurrentCell):
    """Base class of cells whose state is a memory matrix S (K, V) for each head, changed by the delta rule.

        [q; k_1 … k_n; v_1 … v_n] = SiLU(conv(W_ih x))        depthwise and causal; zeros before the first step
        S ← e^{γ} ⊙ S                                         decay, unless the cell has none
        S ← S + k̂_j (w_j ⊙ v_j − Sᵀ (e_j ⊙ k̂_j))ᵀ             for j = 1 … n, the micro-steps of a step
        y = g ⊙ m / √(mean m² + 10⁻⁵) ⊙ gate,  m = Sᵀ q̂ / √K   for each head

    with k̂ = k / √(Σ k² + 10⁻⁶), and q̂ in the same way. A subclass computes the rates e and w, γ and the gate in `rates`
    from further rows of W_ih. The output is y; the matrix after it in the published layers belongs to the block around
    the cell, see `gyral.nn.block.PreNormBlock`.

    `fused` goes over time in chunks (`gyral.ops.delta`).

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1, the width of the keys of all heads together.
        heads: H; the keys of each have K = ⌈N / H⌉ numbers.
        expand: V / K. The outputs have H V numbers.
        micro_steps: n, the number of micro-steps.
        kernel_size: Number of steps in the window of the convolution; None: no convolution.
        negative_eigenvalues: Whether e is twice as large, so that eigenvalues of the transition of S lie in (−1, 1)
            instead of (0, 1), which parity and permutations need (Grazzi et al., ICLR 2025).
        gate: Whether there is a gate.
        initialization: Of matrices and of the convolution; "default": uniform in ±1/√inputs, as `torch.nn.Linear`;
            "authors": normal with deviation 0.02, as the published models, whose widths are above 1,000.
    """

    class State(NamedTuple):
        """S (B, H, K, V), and the last inputs of the convolution (B, kernel_size − 1, C), the latest last."""

        memory: Tensor
        window: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        heads: int,
        expand: int,
        micro_steps: int,
        kernel_size: int | None,
        negative_eigenvalues: bool,
        gate: bool,
        initialization: str,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.heads, self.micro_steps = check_integer("heads", heads), micro_steps
        self.head_size = -(-hidden_size // heads)
        self.value_size = check_integer("expand", expand) * self.head_size
        self.output_size = heads * self.value_size
        self.kernel_size = 1 if kernel_size is None else check_integer("kernel_size", kernel_size, minimum=2)
        self.negative_eigenvalues = check_boolean("negative_eigenvalues", negative_eigenvalues)
        self.has_gate = check_boolean("gate", gate)
        self.initialization = check_choice("initialization", initialization, AUTHORS)
        width, value_width = heads * self.head_size, self.output_size
        self.sizes = width, micro_steps * width, micro_steps * value_width  # of q, k and v
        self.channels = sum(self.sizes)
        self.rows = self.further_rows()
        self.weight_ih = nn.Parameter(torch.empty(self.channels + sum(self.rows.values()), input_size))
        self.weight_conv = None if kernel_size is None else nn.Parameter(torch.empty(self.channels, kernel_size))
        self.weight_norm = nn.Parameter(torch.empty(self.value_size))

    @abstractmethod
    def further_rows(self) -> dict[str, int]:
        """Return the numbers of rows of W_ih after those of q, k and v, by name, those of "gate" first."""

    @abstractmethod
    def rates(self, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return e, w, γ and the gate, as `Projected` has them, from the further rows of W_ih x (…, count)."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset all parameters."""
        self.weight_norm.fill_(1.0)
        for parameter in self.parameters():
            if parameter.dim() == 2 and self.initialization == "authors":
                parameter.normal_(std=DEVIATION)
            elif parameter.dim() == 2:
                parameter.uniform_(-(parameter.shape[1] ** -0.5), parameter.shape[1] ** -0.5)

    def init_state(self, batch_size: int) -> State:
        memory = self.zeros(batch_size, self.heads, self.head_size, self.value_size)
        return self.State(memory, self.zeros(batch_size, self.kernel_size - 1, self.channels))

    def project(self, inputs: Tensor) -> Projected:
        exact = sum(self.rows.values()) - self.rows["gate"]
        rough, precise = self.weight_ih.split([len(self.weight_ih) - exact, exact])
        dtype = self.weight_norm.dtype
        values, gate = F.linear(inputs, rough).to(dtype).split([self.channels, self.rows["gate"]], dim=-1)
        with outside_autocast(inputs.device):  # bfloat16 has two digits, and the decay of many steps is a product
            products = F.linear(inputs.to(dtype), precise).to(self.wide).split(list(self.rows.values())[1:], dim=-1)
            return Projected(values, *self.rates(dict(zip(self.rows, (gate.to(self.wide), *products), strict=True))))

    @property
    def wide(self) -> torch.dtype:
        """The dtype of everything between the projections and the outputs: float32 or float64."""
        return torch.promote_types(self.weight_norm.dtype, torch.float32)

    def to_erase(self, logits: Tensor) -> Tensor:
        """Return the rates of erasing for their logits."""
        rates = torch.sigmoid(logits)
        return 2 * rates if self.negative_eigenvalues else rates

    def prepare(self, convolved: Tensor, projected: Projected) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return q (…, H, K), k, v (…, n, H, ·) and the vectors that erase, for the sums of the convolution (…, C)."""
        queries, keys, values = F.silu(convolved.to(self.wide)).split(self.sizes, dim=-1)
        q = unit(queries.unflatten(-1, (self.heads, self.head_size))) * self.head_size**-0.5
        k = unit(keys.unflatten(-1, (self.micro_steps, self.heads, self.head_size)))
        v = values.unflatten(-1, (self.micro_steps, self.heads, self.value_size))
        return q, k, projected.write * v, projected.erase * k

    def finish(self, read: Tensor, gate: Tensor | None) -> Tensor:
        """Return the outputs (…, H V) for what is read (…, H, V)."""
        normed = F.rms_norm(read, (self.value_size,), self.weight_norm.to(read.dtype), NORM_EPSILON)
        return (normed if gate is None else normed * gate).flatten(-2).to(self.weight_norm.dtype)

    def step(self, projected: Projected, state: State, constants: object) -> tuple[Tensor, State]:
        inside = torch.cat((state.window, projected.values.unsqueeze(1)), dim=1)
        convolved = projected.values if self.weight_conv is None else (inside * self.weight_conv.T).sum(1)
        q, k, v, erase = self.prepare(convolved, projected)
        read, memory = delta_step(q, k, v, state.memory.to(self.wide), projected.decay, erase)
        return self.finish(read, projected.gate), self.State(memory.to(state.memory.dtype), inside[:, 1:])

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        return None

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        projected = self.project(inputs)
        convolved = projected.values
        if self.weight_conv is not None:
            convolved = convolution(convolved, self.weight_conv, state.window, lengths=lengths, starts=starts)
        q, k, v, erase = self.prepare(convolved, projected)
        options: dict[str, Any] = {"lengths": lengths, "starts": starts}
        s0 = state.memory.to(self.wide)
        read, memory = delta_scan(q, k, v, s0, decay=projected.decay, erase=erase, **options)
        final = self.State(memory.to(state.memory.dtype), window(projected.values, state.window, lengths, starts))
        return self.finish(read, projected.gate), final


class ScalarRatesCell(DeltaRuleCell):
    """Base class of layers with one rate β = e = w for each head and micro-step.

        β = σ(W_β x), or 2 σ(W_β x)
        γ = −exp(A_log) softplus(W_Δ x + b_Δ)       one for each head; or no decay
        gate = SiLU(W_g x), or no gate

    Parameters and initial values: `weight_ih` (rows, X), rows [q; k; v; g; β; Δ], of k and v those of micro-step 1
    first, and `weight_conv` (C, kernel_size), see `initialization`; `A_log` (H,), the logarithm of numbers that are
    uniform in [0, 16]; `bias_dt` (H,), the inverse of softplus at step sizes whose logarithm is uniform in
    [log 0.001, log 0.1]; `weight_norm` g (V,), one.

    Args:
        decay: Whether there is a decay.
    """

    dynamics = ("A_log", "bias_dt")

    @abstractmethod  # a subclass names the options
    def __init__(self, input_size: int, hidden_size: int, *, decay: bool, **options: Any) -> None:
        self.has_decay = check_boolean("decay", decay)
        super().__init__(input_size, hidden_size, **options)
        self.A_log = nn.Parameter(torch.empty(self.heads)) if decay else None
        self.bias_dt = nn.Parameter(torch.empty(self.heads)) if decay else None
        self.reset_parameters()

    def further_rows(self) -> dict[str, int]:
        decay, gate = self.heads * self.has_decay, self.output_size * self.has_gate
        return {"gate": gate, "beta": self.micro_steps * self.heads, "dt": decay}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.A_log is not None and self.bias_dt is not None:
            draw_rates_(self.A_log, 0.0)
            draw_step_sizes_(self.bias_dt)

    def rates(self, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        beta = self.to_erase(rows["beta"]).unflatten(-1, (self.micro_steps, self.heads, 1))
        decay = gate = None
        if self.A_log is not None and self.bias_dt is not None:
            decay = -torch.exp(self.A_log.to(self.wide)) * F.softplus(rows["dt"] + self.bias_dt)
        if self.has_gate:
            gate = F.silu(rows["gate"]).unflatten(-1, (self.heads, self.value_size))
        return beta, beta, decay, gate


def unit(vectors: Tensor) -> Tensor:
    """Return vectors (…, K) divided by √(Σ k² + ε)."""
    return vectors * torch.rsqrt(vectors.square().sum(-1, keepdim=True) + UNIT_EPSILON)


@torch.no_grad()
def draw_rates_(logarithms: Tensor, smallest: float) -> None:
    """Fill a tensor with logarithms of numbers that are uniform between a number and 16."""
    dtype = torch.promote_types(logarithms.dtype, torch.float32)
    drawn = torch.empty_like(logarithms, dtype=dtype).uniform_(smallest, LARGEST_RATE)
    logarithms.copy_(drawn.clamp(min=math.exp(-20)).log())
