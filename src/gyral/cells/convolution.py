"""The base class of convolutions over time whose weights are shared by the channels of a head."""

from abc import abstractmethod
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DeclaredCell
from gyral.cells.heads import check_heads
from gyral.cells.initialization import AUTHORS
from gyral.core.errors import OptionError
from gyral.core.options import OneOf, PositiveInt, Probability, Range, derived
from gyral.ops import convolution
from gyral.ops.convolution import head_of_channel

HEADS = 4  # by default


class Projected(NamedTuple):
    """Gated inputs v (…, B, N), and the scores (…, B, H, K) of the weights of each step, or None: they are constant."""

    values: Tensor
    scores: Tensor | None


class ConvolutionCell(DeclaredCell):
    """Base class of light and dynamic convolutions (Wu et al., ICLR 2019).

        v_t = (W_a x_t + b_a) ⊙ σ(W_b x_t + b_b)                        gated linear unit
        y_{t,c} = Σ_{j=1}^{K} w_{h(c),j} v_{t−K+j, c}                   values before the first step are zero

    A head h(c) is a range of consecutive channels, which share the K weights of the window. By default a softmax makes
    them positive with sum 1. The output y_t depends on the last K inputs alone. The state has the last K − 1 values. A
    subclass defines the weights. The linear layer after the convolution belongs to the block around it; see
    `gyral.nn.block.PreNormBlock`.

    Parameters: `weight_ih` (2N, X), rows [W_a; W_b], Xavier-uniform; `bias` (2N,), zero.

    Args:
        hidden_size: N ≥ 1, the number of channels.
        kernel_size: K ≥ 2, the number of steps in the window.
        heads: H, from 1 to N; if None, 4 or, if it is smaller, N. If H does not divide N, some heads have one
            channel more than others.
        weight_dropout: Probability, in [0, 1), that a weight is zero in training after the softmax (DropConnect); the
            others are multiplied by 1 / (1 − p).
        softmax: Whether the weights of a window are normalized by a softmax. False: they are used as projected.
        initialization: Initial values of the weights of a window, "default" or "authors"; see the subclasses.
    """

    steps_alone = True
    fused_operator = convolution.convolution

    class State(NamedTuple):
        """The last value (B, N), and the K − 2 before it, (B, K − 2, N), the latest last."""

        latest: Tensor
        earlier: Tensor

    kernel_size: Annotated[int, Range(2)] = 31
    heads: PositiveInt = derived(default=None)
    weight_dropout: Probability = 0.0
    softmax: bool = True
    initialization: Annotated[str, OneOf(AUTHORS)] = "default"

    def check(self) -> None:
        check_heads(self.heads, self.hidden_size)

    def __post_init__(self) -> None:
        self.heads = self.heads or min(HEADS, self.hidden_size)
        self.weight_ih = nn.Parameter(torch.empty(2 * self.hidden_size, self.input_size))
        self.bias = nn.Parameter(torch.empty(2 * self.hidden_size))
        self.weight = nn.Parameter(torch.empty(self.weight_shape()))
        self.reset_parameters()

    @abstractmethod
    def weight_shape(self) -> tuple[int, int]:
        """Return the shape of the parameter `weight`, which determines the weights of a window."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight_ih)
        self.bias.zero_()

    def init_state(self, batch_size: int) -> State:
        size = self.hidden_size
        return self.State(self.zeros(batch_size, size), self.zeros(batch_size, self.kernel_size - 2, size))

    def project(self, inputs: Tensor) -> Projected:
        values = F.glu(F.linear(inputs, self.weight_ih, self.bias)).to(self.weight_ih.dtype)
        return Projected(values, self.scores(values))

    @abstractmethod
    def scores(self, values: Tensor) -> Tensor | None:
        """Return the scores (…, B, H, K) of the weights of each step for values (…, B, N); None: they are constant."""

    @abstractmethod
    def weights(self, scores: Tensor | None, constants: Any) -> Tensor:
        """Return the weights of a step, (B, H, K), or (H, K) if they are constant."""

    @abstractmethod
    def kernel_weights(self, scores: Tensor | None, constants: Any) -> tuple[Tensor, Tensor | None]:
        """Return the arguments `weights` and `mask` of `gyral.ops.convolution.convolution` for a sequence."""

    def step(self, projected: Projected, state: State, constants: Any) -> tuple[Tensor, State]:
        values, scores = projected
        window = torch.cat((state.earlier, state.latest.unsqueeze(1), values.unsqueeze(1)), dim=1)
        head = head_of_channel(self.hidden_size, self.heads, values.device)
        weights = self.weights(scores, constants).index_select(-2, head)  # (…, N, K)
        output = (weights.mT * window).sum(dim=1)  # constant weights are transposed once in an exported program
        _, earlier, _ = window.split((1, self.kernel_size - 2, 1), dim=1)  # a slice takes an exported step longer
        return output, self.State(values, earlier)

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        """Return the reason why the kernels of a CPU do not run; without kernels, there is a loop over the window."""
        if self.bias.is_cuda or self.bias.device.type not in convolution.convolution.kernels:
            return None
        return convolution.unsupported_reason(self.bias)

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        values, scores = self.project(inputs)
        history = torch.cat((state.earlier, state.latest.unsqueeze(1)), dim=1)
        weights, mask = self.kernel_weights(scores, self.sequence_constants(*values.shape[:2]))
        outputs = convolution.convolution(
            values, weights, history, mask=mask, lengths=lengths, starts=starts, softmax=self.softmax
        )
        last = convolution.window(values, history, lengths, starts)
        return outputs, self.State(last[:, -1], last[:, :-1])

    def centered(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Run over whole sequences (T, B, X) with the window in the middle: from K // 2 steps back to as many ahead.

        Such a convolution reads later inputs, so that it has no step and no state. Values beyond the lengths are zero.

        Returns:
            The outputs (T, B, N), zero beyond the lengths.

        Raises:
            OptionError: K is even.
        """
        self.check_centered()
        values, scores = self.project(inputs)
        weights, mask = self.kernel_weights(scores, self.sequence_constants(*values.shape[:2]))
        back = self.kernel_size // 2
        return convolution.convolution(values, weights, back=back, mask=mask, lengths=lengths, softmax=self.softmax)

    def check_centered(self) -> None:
        """Check that the window has a middle.

        Raises:
            OptionError: K is even.
        """
        if self.kernel_size % 2 == 0:
            raise OptionError("kernel_size", self.kernel_size, "must be odd for a centered window")
