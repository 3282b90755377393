"""mLSTM: a memory matrix with exponential gates, of xLSTM and of xLSTM 7B."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.heads import heads_of_two, share
from gyral.cells.initialization import uniform_
from gyral.cells.linear_attention import MatrixMemoryCell, Operands, linear, run_scan, run_step
from gyral.core.options import PositiveInt, Range, derived
from gyral.ops.block_projections import block_projections
from gyral.ops.gated_heads import gated_heads
from gyral.ops.gated_heads.naive import read
from gyral.ops.normalized_heads import normalized_heads
from gyral.ops.sequences import last_step
from gyral.ops.stabilized_gates import NEVER, stabilized_gates
from gyral.ops.stabilized_gates.naive import smallest_divisor


class Heads(NamedTuple):
    """q_t, k_t (…, H, K), [v_t; 1] (…, H, V + 1), and the logits [i_t; f_t] of the gates (…, 2H) in `state_dtype`."""

    q: Tensor
    k: Tensor
    v: Tensor
    gates: Tensor


class Gating(NamedTuple):
    """How the outputs of the heads are gated; see `gyral.ops.gated_heads.naive.gated_heads`."""

    gate: Tensor
    gain: Tensor
    skip: Tensor | None
    skipped: Tensor | None
    silu: bool


class StabilizedCell(MatrixMemoryCell):
    """Base class of cells with the memory of mLSTM: a matrix C and a vector n for each head.

        f̄_t = log σ(f_t),  m_t = max(f̄_t + m_{t−1}, i_t)
        C_t = e^{f̄_t + m_{t−1} − m_t} C_{t−1} + e^{i_t − m_t} (k_t / √K) v_tᵀ
        n_t = e^{f̄_t + m_{t−1} − m_t} n_{t−1} + e^{i_t − m_t} k_t / √K
        h_t = C_tᵀ q_t / (max(|n_tᵀ q_t|, e^{−m_t}) + 10⁻⁶)

    The state has C and n as one matrix, whose last column is n. m is −10³⁰ before the first step, so that m_1 = i_1 as
    in the authors' parallel form; their step starts from m_0 = 0. Unlike there, e^{−m_t} is at most e⁸⁰: it would
    overflow in float32, and its gradient would not be a number, where the first i_t of a sequence is below −88.

    State:
        A NamedTuple (memory, stabilizer): [C, n] (B, H, K, V + 1) and m (B, H).

    The outputs of the operator are normalized in each head, and gated as `gating` says.

    Attributes:
        published_heads: The number of heads of the published models.
        epsilon: ε of the normalization of the outputs.
    """

    published_heads: ClassVar[int]
    epsilon: ClassVar[float]

    def check(self) -> None:
        heads_of_two(self.heads, self.hidden_size, self.published_heads)

    def __post_init__(self) -> None:
        self.heads = heads_of_two(self.heads, self.hidden_size, self.published_heads)
        super().__post_init__()

    def init_state(self, batch_size: int) -> Any:
        memory = self.zeros(batch_size, self.heads, self.key_size, self.value_size + 1, dtype=self.state_dtype)
        stabilizer = self.zeros(batch_size, self.heads, dtype=self.state_dtype) + NEVER
        if self.kernel_size is None:
            return StabilizedState(memory, stabilizer)
        return WindowedStabilizedState(memory, stabilizer, self.init_window(batch_size))

    @abstractmethod
    def select(self, projected: Any, values: tuple[Tensor, ...]) -> Heads:
        """Return the queries, keys, values and gates of the memory, for one step or for all."""

    @abstractmethod
    def gating(self, projected: Any, values: tuple[Tensor, ...]) -> Gating:
        """Return how the outputs of the heads are gated."""

    def _widened_gating(self, projected: Any, values: tuple[Tensor, ...]) -> Gating:
        """Return the same with tensors in the dtype `state_dtype`."""
        given = self.gating(projected, values)
        tensors: dict[str, Any] = {
            name: each.to(self.state_dtype) for name, each in given._asdict().items() if isinstance(each, Tensor)
        }
        return given._replace(**tensors)

    def read(self, outputs: Tensor, projected: Any, values: tuple[Tensor, ...]) -> Tensor:
        return self.to_parameter_dtype(read(outputs, *self._widened_gating(projected, values)))

    def step(self, projected: Any, state: Any, constants: object) -> tuple[Tensor, Any]:
        values, state = self.convolve_step(projected.values, state)
        heads = self.select(projected, values)
        write, forget = heads.gates.chunk(2, dim=-1)
        before, forget = state.stabilizer.to(self.state_dtype), F.logsigmoid(forget)
        stabilizer = torch.maximum(forget + before, write)
        decay = torch.where(before > NEVER / 2, forget + before - stabilizer, 0.0)
        write = torch.exp(write - stabilizer) * self.key_size**-0.5
        outputs, memory = run_step(operands(heads, decay, write), state.memory)
        normal = normalized_heads.naive(outputs, smallest_divisor(stabilizer), self.epsilon)
        outputs = self.read(normal, projected, values)
        return outputs[..., : self.hidden_size], state._replace(memory=memory, stabilizer=stabilizer)

    def fused(self, inputs: Tensor, state: Any, lengths: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Any]:
        projected = self.project(inputs)
        values, state = self.convolve(projected.values, state, lengths, starts)
        heads = self.select(projected, values)  # the gates and the recurrence know the lengths
        given = heads.gates, state.stabilizer.to(self.state_dtype), lengths, starts, self.key_size**-0.5
        decay, write, least, stabilizers = stabilized_gates(*given)
        outputs, memory = run_scan(operands(heads, decay, write), state.memory, lengths, starts)
        *gating, silu = self._widened_gating(projected, values)
        outputs = gated_heads(outputs, least, *gating, self.epsilon, silu, lengths)
        outputs = self.to_parameter_dtype(outputs)[..., : self.hidden_size]
        return outputs, state._replace(memory=memory, stabilizer=last_step(stabilizers, lengths))


class StabilizedState(NamedTuple):
    """The memory [C, n] (B, H, K, V + 1), and the stabilizer m (B, H)."""

    memory: Tensor
    stabilizer: Tensor


class WindowedStabilizedState(NamedTuple):
    """[C, n] (B, H, K, V + 1), m (B, H), and the last inputs of the convolution (B, kernel_size − 1, C)."""

    memory: Tensor
    stabilizer: Tensor
    window: Tensor


def operands(heads: Heads, decay: Tensor, write: Tensor) -> Operands:
    """Return the arguments of the operator; decay and write (…, H) as in `gyral.ops.stabilized_gates`."""
    return Operands(heads.q, heads.k.unsqueeze(-3), heads.v.unsqueeze(-3), decay, write=write.unsqueeze(-2))


class Projected(NamedTuple):
    """u_t, the inputs of the convolution, and the gates z_t before SiLU, each (…, H V)."""

    values: Tensor
    gate: Tensor


class MLSTMCell(StabilizedCell):
    """mLSTM of xLSTM, without the matrix after the recurrence.

    mLSTM (Beck, Pöppel, Spanring, Auer, Prudnikova, Kopp, Klambauer, Brandstetter and Hochreiter, "xLSTM: extended
    long short-term memory", NeurIPS 2024, equations 19 to 27), in the layer of its appendix.

        [u_t; z_t] = W_ih x_t
        c_t = SiLU(Σ_{j=1}^{kernel_size} w_j ⊙ u_{t−kernel_size+j} + b_w)     values before the first step are zero
        q_t = W_q c_t,  k_t = W_k c_t,  v_t = W_v u_t             block-diagonal
        [i_t; f_t] = W_g [q_t; k_t; v_t] + b_g                    one number for each head
        y_t = (g ⊙ LN(h_t) + s ⊙ c_t) ⊙ SiLU(z_t)

    with h_t of `StabilizedCell`. LN is over the V numbers of a head, without gain, with ε = 10⁻⁵. K = V. The published
    layer has inputs of half the width, N = 2X. See `gyral.cells.linear_attention.MatrixMemoryCell` for sizes.

    Parameters and initial values: `weight_ih` (2HV, X), rows [u; z], and `weight_qkv` (3, ⌈HV / b⌉, b, b), the blocks,
    normal with variance 2 / (5X); `weight_conv` (HV, kernel_size) and `bias_conv` (HV,), uniform in ±1/√kernel_size;
    `weight_gates` (2H, 3HV), rows [i; f], zero; `bias_gates` (2H,), of i normal with standard deviation 0.1, of f from
    3 to 6 in equal steps; `skip` s and `weight_norm` g (H V,), one.

    State:
        A NamedTuple (memory, stabilizer, window): [C, n] (B, H, K, V + 1), m (B, H), and the last inputs of the
        convolution (B, kernel_size − 1, H V), the latest last.

    Args:
        hidden_size: N ≥ 2.
        heads: H, below N; 4, or ⌈N / 2⌉ for N ≤ 4, if None.
        kernel_size: ≥ 2, the number of steps in the window of the convolution.
        block: b, the size of the blocks of W_q, W_k and W_v. If it does not divide H V, the last blocks are not full.

    Example:
        >>> layer = MLSTM(16, 64, heads=2)
    """

    no_decay_parameters = ("bias_gates",)

    published_heads, epsilon = 4, 1e-5

    kernel_size: Annotated[int, Range(2)] = 4
    block: PositiveInt = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        width, block = self.width, self.block
        self.weight_ih = nn.Parameter(torch.empty(2 * width, self.input_size))
        self.create_convolution([width], self.kernel_size, bias=True)
        self.weight_qkv = nn.Parameter(torch.empty(3, share(width, block), block, block))
        self.weight_gates = nn.Parameter(torch.empty(2 * self.heads, 3 * width))
        self.bias_gates = nn.Parameter(torch.empty(2 * self.heads))
        self.skip = nn.Parameter(torch.empty(width))
        self.weight_norm = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        uniform_(self.bias_conv, self.weight_conv.shape[1] ** -0.5)
        for weight in (self.weight_ih, self.weight_qkv):
            weight.normal_(std=(2 / (5 * self.input_size)) ** 0.5)
        self.weight_gates.zero_()
        self.bias_gates[: self.heads].normal_(std=0.1)
        self.bias_gates[self.heads :] = torch.linspace(3, 6, self.heads)

    def project(self, inputs: Tensor) -> Projected:
        return Projected(*(linear(inputs, weight) for weight in self.weight_ih.chunk(2)))

    def select(self, projected: Projected, values: tuple[Tensor, ...]) -> Heads:
        given = values[0], projected.values, self.weight_qkv, self.weight_gates, self.bias_gates
        is_step = values[0].dim() == 2
        run = block_projections.naive if is_step else block_projections
        q, k, v, gates = run(*self.to_state_dtype(*given), self.heads)
        q, k = (part.unflatten(-1, (self.heads, -1)) for part in (q, k))
        return Heads(q, k, v, gates)

    def gating(self, projected: Projected, values: tuple[Tensor, ...]) -> Gating:
        return Gating(projected.gate, self.weight_norm, self.skip, values[0], silu=True)


class LargeProjected(NamedTuple):
    """[q_t; k_t; v_t], the output gates o_t before the sigmoid (…, H V), and the logits [i_t; f_t] (…, 2H)."""

    values: Tensor
    gate: Tensor
    gates: Tensor


class MLSTMLargeCell(StabilizedCell):
    """mLSTM of xLSTM 7B, without the matrix after the recurrence.

    mLSTM in the layer of xLSTM 7B (Beck, Pöppel, Lippe, Kurle, Blies, Klambauer, Böck and Hochreiter, "xLSTM 7B: a
    recurrent LLM for fast and efficient inference", 2025).

        [q_t; k_t; v_t; o_t] = W_ih x_t
        [i_t; f_t] = c tanh((W_g x_t + b_g) / c)                  one number for each head
        y_t = g ⊙ LN(h_t) ⊙ σ(o_t)

    with h_t of `StabilizedCell`. LN is over the V numbers of a head, without gain, with ε = 10⁻⁶. There is no
    convolution. See `gyral.cells.linear_attention.MatrixMemoryCell` for sizes.

    Parameters and initial values: `weight_ih` (2HK + 2HV, X), rows [q; k; v; o], and `weight_gates` (2H, X), rows
    [i; f], uniform in ±1/√X; `bias_gates` (2H,), of i −10, so that the first steps write little, of f from 3 to 6 in
    equal steps; `weight_norm` g (H V,), one.

    Args:
        hidden_size: N ≥ 2.
        heads: H, below N; 8, or ⌈N / 2⌉ for N ≤ 8, if None.
        key_size: K; ⌈V / 2⌉ if None.
        cap: c > 0, the bound of the logits of the gates.

    Example:
        >>> layer = MLSTMLarge(16, 64, heads=2)
    """

    no_decay_parameters = ("bias_gates",)
    values_per_key = 2

    published_heads, epsilon = 8, 1e-6

    key_size: PositiveInt = derived(default=None)
    cap: Annotated[float, Range(above=0)] = 15.0

    def __post_init__(self) -> None:
        super().__post_init__()
        keys = self.heads * self.key_size
        self.sizes = keys, keys, self.width
        self.weight_ih = nn.Parameter(torch.empty(sum(self.sizes) + self.width, self.input_size))
        self.create_convolution(self.sizes, None)
        self.weight_gates = nn.Parameter(torch.empty(2 * self.heads, self.input_size))
        self.bias_gates = nn.Parameter(torch.empty(2 * self.heads))
        self.weight_norm = nn.Parameter(torch.empty(self.width))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.bias_gates[: self.heads] = -10.0
        self.bias_gates[self.heads :] = torch.linspace(3, 6, self.heads)

    def project(self, inputs: Tensor) -> LargeProjected:
        values, gate = (linear(inputs, weight) for weight in self.weight_ih.split([sum(self.sizes), self.width]))
        gates = self.cap * torch.tanh(self.precise_linear(inputs, self.weight_gates, self.bias_gates) / self.cap)
        return LargeProjected(values, gate, gates)

    def select(self, projected: LargeProjected, values: tuple[Tensor, ...]) -> Heads:
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in values)
        v = torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)
        return Heads(q, k, v, projected.gates)

    def gating(self, projected: LargeProjected, values: tuple[Tensor, ...]) -> Gating:
        return Gating(projected.gate, self.weight_norm, None, None, silu=False)
