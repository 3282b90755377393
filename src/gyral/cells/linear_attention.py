"""The base classes of cells whose state is a memory matrix for each head, which the delta rule's operator runs."""

from abc import abstractmethod
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.cells.base import State
from gyral.cells.heads import share
from gyral.cells.initialization import fan_in_uniform_
from gyral.cells.short_convolution import ConvolvedCell
from gyral.core.options import PositiveInt, derived
from gyral.ops.autograd import outside_autocast
from gyral.ops.delta import delta_scan, delta_step
from gyral.ops.gated_norm import gated_norm
from gyral.ops.sequences import zero_beyond


class MemoryState(NamedTuple):
    """The memory (B, H, K, V)."""

    memory: Tensor


class WindowedState(NamedTuple):
    """The memory (B, H, K, V), and the last inputs of the convolution (B, kernel_size − 1, C), the latest last."""

    memory: Tensor
    window: Tensor


class Operands(NamedTuple):
    """Operands of `gyral.ops.delta.delta_scan` for all steps, or of `gyral.ops.delta.delta_step` for one.

    Attributes:
        q: (…, G, K); G heads of keys divide H.
        k: (…, n, G, K), for n micro-steps.
        v: (…, n, H, V).
        decay: (…, H) or (…, H, K), or None.
        erase: (…, n, G) or (…, n, G, K), or None.
        write: (…, n, H), or None.
        unit: Whether q and k become unit vectors.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor | None = None
    erase: Tensor | None = None
    write: Tensor | None = None
    unit: bool = False


class Readout(NamedTuple):
    """What follows the memory: the arguments of `gyral.ops.gated_norm.gated_norm` that are not its outputs."""

    gain: Tensor | None = None
    gate: Tensor | None = None
    skip: Tensor | None = None
    weight: Tensor | None = None
    size: int = 1
    activation: str = "silu"
    gate_first: bool = False
    epsilon: float = 1e-5


class MatrixMemoryCell(ConvolvedCell):
    """Base class of cells with a memory matrix (K, V) for each of H heads, and a short convolution before it.

    `project` returns a NamedTuple with a field `values` (…, C), which pass the convolution, if the cell has one. The
    parts of the results are the `values` of `read`, which makes the output from what the memory returns. The same code
    runs one step or all steps.

    The matrix after the output in a published layer belongs to the block around the cell; see
    `gyral.nn.block.PreNormBlock`.

    State:
        One tensor (B, H, K, V), the memory matrices. With a convolution, a NamedTuple (memory, window) of them and the
        last inputs of the convolution (B, kernel_size − 1, C), the latest last.

    Args:
        hidden_size: N ≥ 1. The values of a head have size V = ⌈N / H⌉; of the H V numbers that the heads return, the
            first N are the output. These are all if H divides N.
        heads: H; ⌈N / `head_size`⌉ if None.

    Attributes:
        key_size: K; ⌈V / `values_per_key`⌉ unless a subclass has set it, or has an option of this name.
        head_size: V in the published models of a cell whose option `heads` may be None.
        values_per_key: Size of the values of a head in multiples of that of its keys, if `key_size` is None.
        width: H V.
    """

    fused_operator = delta_scan
    head_size: ClassVar[int]
    values_per_key: ClassVar[int] = 1

    heads: PositiveInt = derived(default=None)
    key_size: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.heads = self.heads or share(self.hidden_size, self.head_size)
        self.value_size = share(self.hidden_size, self.heads)
        self.width = self.heads * self.value_size
        self.key_size = self.key_size or share(self.value_size, self.values_per_key)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset all parameters: matrices (M, J) uniform in ±1/√J, as in `torch.nn.Linear`, biases zero, gains one."""
        for name, parameter in self.named_parameters():
            if name.startswith("bias"):
                parameter.zero_()
            elif parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                fan_in_uniform_(parameter)

    def init_state(self, batch_size: int) -> State:
        memory = self.zeros(batch_size, self.heads, self.key_size, self.value_size, dtype=self.state_dtype)
        if self.kernel_size is None:
            return MemoryState(memory)
        return WindowedState(memory, self.init_window(batch_size))

    @abstractmethod
    def read(self, outputs: Tensor, projected: Any, values: Any) -> Tensor:
        """Return the outputs of the heads (…, H V) for those of the operator (…, H, V)."""


class LinearAttentionCell(MatrixMemoryCell):
    """Base class of cells whose memory is changed as `gyral.ops.delta` describes; `operands` makes its arguments.

    See `MatrixMemoryCell` for the arguments.
    """

    @abstractmethod
    def operands(self, projected: Any, values: Any) -> Operands:
        """Return the arguments of the operator, in the dtype of the parameters or in float32."""

    def read_all(self, outputs: Tensor, projected: Any, values: Any, lengths: Tensor | None) -> Tensor:
        """Return what `read` returns for all steps, zero beyond the lengths (B,)."""
        return zero_beyond(self.read(outputs, projected, values), lengths)

    def step(self, projected: Any, state: State, constants: object) -> tuple[Tensor, State]:
        values, state = self.convolve_step(projected.values, state)
        outputs, memory = run_step(self.operands(projected, values), state.memory)
        return self.read(self.to_parameter_dtype(outputs), projected, values)[..., : self.hidden_size], state._replace(
            memory=memory
        )

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        projected = self.project(inputs)
        values, state = self.convolve(projected.values, state, lengths, starts)
        outputs, memory = run_scan(self.operands(projected, values), state.memory, lengths, starts)
        outputs = self.read_all(self.to_parameter_dtype(outputs), projected, values, lengths)
        return outputs[..., : self.hidden_size], state._replace(memory=memory)


class NormalizedMemoryCell(LinearAttentionCell):
    """Base class of cells whose memory returns values that pass `gyral.ops.gated_norm`; `readout` makes its arguments.

    See `MatrixMemoryCell` for the arguments.
    """

    @abstractmethod
    def readout(self, projected: Any, values: Any) -> Readout:
        """Return what follows the memory, in the dtype of the parameters."""

    def read(self, outputs: Tensor, projected: Any, values: Any) -> Tensor:
        return gated_norm.naive(outputs, **self.readout(projected, values)._asdict())

    def read_all(self, outputs: Tensor, projected: Any, values: Any, lengths: Tensor | None) -> Tensor:
        return gated_norm(outputs, **self.readout(projected, values)._asdict(), lengths=lengths)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the product in the dtype of the weight, also under autocast."""
    return F.linear(inputs, weight, bias).to(weight.dtype)


def run_step(operands: Operands, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs (B, H, V) and the new memory of one step, in float32 or float64."""
    q, k, v, decay, erase, write, wide = widened(operands, memory)
    with outside_autocast(memory.device):
        return delta_step(q, k, v, wide, decay, erase, write, operands.unit)


def run_scan(
    operands: Operands, memory: Tensor, lengths: Tensor | None, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the outputs (T, B, H, V) and the last memory of all steps, in float32 or float64."""
    q, k, v, decay, erase, write, wide = widened(operands, memory)
    rates = {"decay": decay, "erase": erase, "write": write, "unit": operands.unit}
    return delta_scan(q, k, v, wide, **rates, lengths=lengths, starts=starts)


def widened(operands: Operands, memory: Tensor) -> list[Any]:
    """Return operands and memory in float32, or in float64 if they are: in bfloat16 a decay of 0.999 is 1."""
    dtype = torch.promote_types(memory.dtype, torch.float32)
    return [None if tensor is None else tensor.to(dtype) for tensor in (*operands[:-1], memory)]


def rms_norm(values: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
    """Return gain ⊙ x / √(mean x² + eps) for x (…, W), where W is the size of the gain."""
    return F.rms_norm(values, gain.shape, gain, eps)
