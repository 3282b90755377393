"""Attention within a sequence, as a layer of an encoder or a decoder: self-attention, and average attention.

These layers are called as `gyral.nn.recurrent.Recurrent` is. They are not cells, because the state of self-attention
grows: it contains the keys and values of all earlier steps.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError
from gyral.ops.sequences import zero_beyond


class SelfAttention(nn.Module):
    """Self-attention with several heads (Vaswani et al., "Attention is all you need", NIPS 2017), of any reach.

        q_t, k_t, v_t = W x_t + b
        y_t = Σ_s softmax_s(q_t · k_s / √(N / H)) v_s           in each head, over the steps s in reach

    A decoder reads the steps s ≤ t, at most the last K. `centered`, for an encoder, reads all steps, or the K steps
    around t (limited self-attention: Wu et al., ICLR 2019, table 3). The linear layer after the attention belongs to
    the block around it.

    Initialization: matrices Xavier-uniform, each of the three by itself; biases zero.

    Args:
        input_size: X ≥ 1.
        hidden_size: N, size of queries, keys, values and outputs.
        heads: H, which divides N.
        kernel_size: K ≥ 2, the number of steps in reach; None: all.
        weight_dropout: probability, in [0, 1), that a weight of the attention is zero in training; the others are
            multiplied by 1 / (1 − p).

    Raises:
        OptionError: an option is out of bounds or has another type.
    """

    class State(NamedTuple):
        """Keys and values of the earlier steps in reach, (B, steps, N)."""

        keys: Tensor
        values: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        heads: int = 4,
        kernel_size: int | None = None,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.output_size = check_integer("hidden_size", hidden_size)
        self.heads = check_integer("heads", heads)
        if hidden_size % heads:
            raise OptionError("heads", heads, f"must divide hidden_size, {hidden_size}")
        self.kernel_size = None if kernel_size is None else check_integer("kernel_size", kernel_size, minimum=2)
        self.weight_dropout = check_real("weight_dropout", weight_dropout, minimum=0, below=1)
        self.project = nn.Linear(check_integer("input_size", input_size), 3 * hidden_size)
        for weight in self.project.weight.chunk(3):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.project.bias)

    def init_state(self, batch_size: int) -> tuple[State]:
        """Return the state before the first step, without keys."""
        nothing = self.project.bias.new_zeros(batch_size, 0, self.output_size)
        return (self.State(nothing, nothing),)

    def forward(self, inputs: Tensor, state: tuple[State] | None = None) -> tuple[Tensor, tuple[State]]:
        """Return the outputs (T, B, N) for inputs (T, B, X), and the state after the last step."""
        queries, keys, values = self.project(inputs).transpose(0, 1).chunk(3, dim=2)
        if state is not None:
            # under autocast, the dtype of the first state differs
            keys = torch.cat((state[0].keys.to(keys.dtype), keys), dim=1)
            values = torch.cat((state[0].values.to(values.dtype), values), dim=1)
        steps = torch.arange(keys.shape[1], device=inputs.device)
        ago = steps[-len(inputs) :].unsqueeze(1) - steps
        reached = ago >= 0 if self.kernel_size is None else (ago >= 0) & (ago < self.kernel_size)
        kept = 0 if self.kernel_size is None else max(0, keys.shape[1] - (self.kernel_size - 1))
        return self._attend(queries, keys, values, reached), (self.State(keys[:, kept:], values[:, kept:]),)

    def centered(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs (T, B, N) with reach in both directions, zero beyond the lengths (B,)."""
        queries, keys, values = self.project(inputs).transpose(0, 1).chunk(3, dim=2)
        steps = torch.arange(len(inputs), device=inputs.device)
        reached = (steps < lengths.unsqueeze(1)).view(-1, 1, 1, len(inputs))
        distance = (steps.unsqueeze(1) - steps).abs()
        if self.kernel_size is not None:
            reached = reached & (distance <= self.kernel_size // 2)
        reached = reached | (distance == 0)  # a step of the padding reaches itself; a softmax over nothing is NaN
        return zero_beyond(self._attend(queries, keys, values, reached), lengths)

    def check_centered(self) -> None:
        """Check that the reach has a middle.

        Raises:
            OptionError: K is even.
        """
        if self.kernel_size is not None and self.kernel_size % 2 == 0:
            raise OptionError("kernel_size", self.kernel_size, "must be odd for a centered window")

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, reached: Tensor) -> Tensor:
        """Return the outputs (T, B, N) for (B, ·, N), with a mask (…, T, S) of the steps in reach."""
        dropout = self.weight_dropout if self.training else 0.0
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (queries, keys, values))
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=reached, dropout_p=dropout)
        return found.transpose(1, 2).flatten(2).transpose(0, 1)


class AverageAttention(nn.Module):
    """The average of all steps so far (Zhang, Xiong and Su, "Accelerating neural transformer via an average attention
    network", ACL 2018).

        g_t = W_2 ReLU(W_1 (1/t) Σ_{s ≤ t} x_s + b_1) + b_2
        [i_t; f_t] = σ(W [x_t; g_t] + b),   y_t = i_t ⊙ x_t + f_t ⊙ g_t

    `centered`, for an encoder, averages over all steps of the sequence; the paper has average attention in the decoder
    alone. Parameters are initialized as torch does.

    Args:
        input_size: X ≥ 1, also the size of the outputs.
        hidden_size: size of the hidden layer, ≥ 1.

    Raises:
        OptionError: an option is out of bounds or has another type.
    """

    class State(NamedTuple):
        """The sum (B, X) of the earlier inputs, and their number (B, 1), in float32 at least."""

        total: Tensor
        number: Tensor

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.output_size = check_integer("input_size", input_size)
        self.expand = nn.Linear(input_size, check_integer("hidden_size", hidden_size))
        self.contract = nn.Linear(hidden_size, input_size)
        self.gates = nn.Linear(2 * input_size, 2 * input_size)

    def init_state(self, batch_size: int) -> tuple[State]:
        """Return the state before the first step."""
        # in bfloat16 a sum of ones would stop growing: 256 + 1 is 256
        wide = torch.promote_types(self.contract.bias.dtype, torch.float32)
        zeros = self.contract.bias.new_zeros(batch_size, self.output_size, dtype=wide)
        return (self.State(zeros, zeros[:, :1]),)

    def forward(self, inputs: Tensor, state: tuple[State] | None = None) -> tuple[Tensor, tuple[State]]:
        """Return the outputs (T, B, X) for inputs (T, B, X), and the state after the last step."""
        total, count = self.init_state(inputs.shape[1])[0] if state is None else state[0]
        totals = total + inputs.cumsum(dim=0, dtype=total.dtype)
        steps = torch.arange(1, len(inputs) + 1, device=inputs.device, dtype=total.dtype)
        counts = count + steps.view(-1, 1, 1)
        averages = (totals / counts).to(inputs.dtype)
        return self._combine(inputs, averages), (self.State(totals[-1], counts[-1]),)

    def centered(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs (T, B, X) with averages over whole sequences, zero beyond the lengths (B,)."""
        average = zero_beyond(inputs, lengths).sum(dim=0) / lengths.unsqueeze(1)
        return zero_beyond(self._combine(inputs, average.expand_as(inputs)), lengths)

    def check_centered(self) -> None:
        """Accept any configuration: an average has no window."""

    def _combine(self, inputs: Tensor, averages: Tensor) -> Tensor:
        found = self.contract(F.relu(self.expand(averages)))
        keep, add = self.gates(torch.cat((inputs, found), dim=-1)).sigmoid().chunk(2, dim=-1)
        return keep * inputs + add * found
