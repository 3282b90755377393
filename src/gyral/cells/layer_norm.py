"""Layer normalization of several gates at once."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LayerNorms(nn.Module):
    """Layer normalization (Ba et al. 2016) of each of several parts of a vector (…, parts · N), with gain and bias.

    Parameters: `weight` (parts, N), the gains, initialized to 1; `bias` (parts, N), initialized to 0.
    """

    def __init__(self, parts: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(parts, size))
        self.bias = nn.Parameter(torch.zeros(parts, size))

    def forward(self, vector: Tensor) -> Tensor:
        parts = vector.unflatten(-1, self.weight.shape)
        return torch.addcmul(self.bias, F.layer_norm(parts, self.weight.shape[1:]), self.weight).flatten(-2)
