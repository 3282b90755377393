"""Readouts of one prediction a sequence: the last state alone, or with what attention finds in the states before it."""

from typing import Protocol

import torch
from torch import Tensor, nn

from gyral.ops.rotation import rotate


class ReadoutFactory(Protocol):
    """Makes a readout from the width of a recurrent stack's outputs, that of its inputs, and the number of classes."""

    def __call__(self, width: int, input_size: int, output_size: int) -> nn.Module: ...


class LastStep(nn.Module):
    """A dense layer on the output at the last step of each sequence.

    Args:
        width: H, of the outputs.
        input_size: X, of the inputs, which are not looked at.
        output_size: number of classes.
    """

    def __init__(self, width: int, input_size: int, output_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, output_size)

    def forward(self, outputs: Tensor, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return logits (B, output_size).

        Args:
            outputs: (T, B, H) of the recurrent stack.
            inputs: (T, B, X) that it had.
            lengths: (B,) integers in [1, T], the sequences' steps; T for all if None.
        """
        return self.dense(last_of(outputs, lengths))


class Attention(nn.Module):
    """Attention of the last state, which has read the query, over the states before it (Dangovski et al., TACL 2019).

    With q the output at a sequence's last step:

        p = softmax over the steps t before the last of q·h_t,   c = Σ p_t h_t,   logits = W [c; q] + b

    The last step itself is left out: q·q = ‖q‖² would be the largest of the products. A sequence of one step has c = 0.

    Args:
        width: H, of the outputs.
        input_size: X, of the inputs.
        output_size: number of classes.
    """

    def __init__(self, width: int, input_size: int, output_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(2 * width, output_size)

    def forward(self, outputs: Tensor, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return logits (B, output_size); arguments as of `LastStep.forward`."""
        context = torch.einsum("tb,tbh->bh", self.weights(outputs, lengths), outputs)
        query = self.turned(last_of(outputs, lengths), last_of(inputs, lengths), context)
        return self.dense(torch.cat([context, query], dim=-1))

    def weights(self, outputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return p (T, B): zero at a sequence's last step and beyond."""
        products = torch.einsum("bh,tbh->tb", last_of(outputs, lengths), outputs)
        steps = torch.arange(len(outputs), device=outputs.device).unsqueeze(1)
        before = steps < (len(outputs) if lengths is None else lengths.to(outputs.device)) - 1
        # not −∞, of which a column without any step before would make NaN
        lowest = torch.finfo(products.dtype).min
        return products.masked_fill(~before, lowest).softmax(dim=0) * before

    def turned(self, query: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Return the query's state (B, H) as it enters the dense layer."""
        return query


class RotationalAttention(Attention):
    """Attention whose context turns the query's state, as RUM's memory turns its own (suggested in the same paper).

        logits = W [c; Rotation(ε̃, c) q] + b,   ε̃ = W̃ x + b̃

    with x the input at the last step, the query's embedding; as in RUM, W̃ is Xavier-uniform and b̃ zero at the start.
    Where c is zero the rotation is the identity.
    """

    def __init__(self, width: int, input_size: int, output_size: int) -> None:
        super().__init__(width, input_size, output_size)
        self.embed = nn.Linear(input_size, width)
        nn.init.xavier_uniform_(self.embed.weight)
        nn.init.zeros_(self.embed.bias)

    def turned(self, query: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        return rotate(self.embed(embedded), context, query)


def last_of(sequence: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the last step (B, …) of each sequence of (T, B, …)."""
    if lengths is None:
        return sequence[-1]
    lengths = lengths.to(sequence.device)
    return sequence[lengths - 1, torch.arange(len(lengths), device=sequence.device)]
