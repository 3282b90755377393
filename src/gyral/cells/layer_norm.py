"""Layer normalization of several gates at once."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LayerNorms(nn.Module):
    """Layer normalization (Ba et al. 2016) of each of several parts of a vector (…, parts · N), with gain and bias.

    `eps` is added to the variance.

    Parameters: `weight` (parts, N), the gains, initialized to 1; `bias` (parts, N), initialized to 0.
    """

    vector_parameters = ("weight",)  # see `RecurrentCell`

    def __init__(self, parts: int, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(parts, size))
        self.bias = nn.Parameter(torch.empty(parts, size))
        self.reset()

    def reset(self) -> None:
        """Set the gains to 1 and the biases to 0.

        Not `reset_parameters`: code that calls that for all modules would undo the forget bias that an LSTM sets here.
        """
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def flat(self) -> list[Tensor]:
        """Return gains and biases, each in one row (parts · N,), as kernels read them."""
        return [self.weight.flatten(), self.bias.flatten()]

    def forward(self, vector: Tensor) -> Tensor:
        parts = vector.unflatten(-1, self.weight.shape)
        normalized = F.layer_norm(parts, self.weight.shape[1:], eps=self.eps)
        return torch.addcmul(self.bias, normalized, self.weight).flatten(-2)
