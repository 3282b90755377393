"""Readouts for one prediction per sequence: the last output, alone or with attention over the outputs before it."""

from typing import Protocol

import torch
from torch import Tensor, nn

from gyral.ops.rotation import rotate
from gyral.ops.sequences import last_step


class ReadoutFactory(Protocol):
    """Makes a readout from the output and input size of the recurrent stack, and the size of what it predicts."""

    def __call__(self, width: int, input_size: int, output_size: int) -> nn.Module: ...


class LastStep(nn.Module):
    """A dense layer on the output at the last step of each sequence.

    Args:
        width: H, size of the outputs.
        input_size: X, size of the inputs, which this readout does not use.
        output_size: number of classes, or size of the predicted real vectors.
    """

    def __init__(self, width: int, input_size: int, output_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, output_size)

    def forward(self, outputs: Tensor, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return predictions (B, output_size), such as logits.

        Args:
            outputs: (T, B, H) outputs of the recurrent stack.
            inputs: (T, B, X) inputs of the recurrent stack.
            lengths: (B,) integers in [1, T], lengths of the sequences; None: T for all.
        """
        return self.dense(last_of(outputs, lengths))


class Attention(nn.Module):
    """Attention over the outputs of a sequence with its last output as query (Dangovski et al., TACL 2019).

    With q the output at the last step of a sequence:

        p = softmax over the steps t before the last of q·h_t,   c = Σ p_t h_t,   logits = W [c; q] + b

    The last step itself is excluded, because q·q = ‖q‖² would be the largest product. A sequence of one step has c = 0.

    Args:
        width: H, size of the outputs.
        input_size: X, size of the inputs.
        output_size: number of classes, or size of the predicted real vectors.
    """

    def __init__(self, width: int, input_size: int, output_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(2 * width, output_size)

    def forward(self, outputs: Tensor, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return predictions (B, output_size), such as logits. See `LastStep.forward` for the arguments."""
        context = torch.einsum("tb,tbh->bh", self.weights(outputs, lengths), outputs)
        query = self.transform_query(last_of(outputs, lengths), last_of(inputs, lengths), context)
        return self.dense(torch.cat([context, query], dim=-1))

    def weights(self, outputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return p (T, B): zero at a sequence's last step and beyond."""
        products = torch.einsum("bh,tbh->tb", last_of(outputs, lengths), outputs)
        steps = torch.arange(outputs.shape[0], device=outputs.device).unsqueeze(1)
        before = steps < (outputs.shape[0] if lengths is None else lengths.to(outputs.device)) - 1
        # With −∞, a column without earlier steps would be NaN.
        lowest = torch.finfo(products.dtype).min
        return products.masked_fill(~before, lowest).softmax(dim=0) * before

    def transform_query(self, query: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Return the query (B, H) that enters the dense layer."""
        return query


class RotationalAttention(Attention):
    """Attention whose context rotates the query, as in the update of RUM's memory (suggested in the same paper).

        logits = W [c; Rotation(ε̃, c) q] + b,   ε̃ = W̃ x + b̃

    Here x is the input at the last step, the embedding of the query. As in RUM, W̃ is initialized Xavier-uniform and b̃
    with zero. If c is zero, the rotation is the identity.
    """

    def __init__(self, width: int, input_size: int, output_size: int) -> None:
        super().__init__(width, input_size, output_size)
        self.embed = nn.Linear(input_size, width)
        nn.init.xavier_uniform_(self.embed.weight)
        nn.init.zeros_(self.embed.bias)

    def transform_query(self, query: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        return rotate(self.embed(embedded), context, query)


def last_of(sequence: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the last step (B, …) of each sequence of (T, B, …)."""
    return last_step(sequence, None if lengths is None else lengths.to(sequence.device))
