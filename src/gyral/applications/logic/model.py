"""A readout that classifies pairs of sequences."""

import torch
from torch import Tensor, nn

from gyral.models.attention import last_of


class PairClassifier(nn.Module):
    """A perceptron on the last outputs of the same network for two sequences.

    With the outputs h₁ and h₂ at the last steps of a pair:

        logits = W₂ ELU(W₁ [h₁; h₂; h₁ ⊙ h₂; |h₁ − h₂|] + b₁) + b₂

    as in the code of Shen et al. (ICLR 2019; yikangshen/Ordered-Neurons on GitHub, branch propositional_logic). Dropout
    acts on the inputs of both layers. The hidden layer has as many units as an output.

    Args:
        width: H, size of the outputs.
        input_size: X, size of the inputs, which this readout does not use.
        output_size: number of classes.
        dropout: dropout probability, in [0, 1).
    """

    def __init__(self, width: int, input_size: int, output_size: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(4 * width, width)
        self.activation = nn.ELU()
        self.output = nn.Linear(width, output_size)

    def forward(self, outputs: Tensor, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the logits (B, output_size) of B pairs.

        Args:
            outputs: (T, 2B, H) outputs of the recurrent stack: the first sequences of all pairs, then the second ones.
            inputs: (T, 2B, X) inputs of the recurrent stack.
            lengths: (2B,) integers in [1, T], lengths of the sequences; None: T for all.
        """
        first, second = last_of(outputs, lengths).chunk(2)
        features = torch.cat((first, second, first * second, (first - second).abs()), dim=-1)
        hidden = self.activation(self.hidden(self.dropout(features)))
        return self.output(self.dropout(hidden))
