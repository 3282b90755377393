"""The read vector of a Lie-access memory: the mean of its vectors, weighted by strength and by distance from a key.

InvNorm    w_i = s_i / (d_i² + ε)
SoftMax    w_i = s_i exp(−d_i² / T)
ρ = Σ w_i m_i / Σ w_i                      (Yang, "Lie Access Neural Turing Machine", 2016)
"""

import torch
from torch import Tensor

EPSILON = 1e-9  # ε of InvNorm
MIN_TEMPERATURE = 1e-4  # T of SoftMax is at least this


def inverse_norm_weights(squared_distances: Tensor, strengths: Tensor) -> Tensor:
    """Return the weights (B, C) of InvNorm, before their division by the sum."""
    return strengths / (squared_distances + EPSILON)


def softmax_weights(squared_distances: Tensor, strengths: Tensor, temperature: Tensor, filled: Tensor) -> Tensor:
    """Return the weights (B, C) of SoftMax, before their division by the sum.

    Args:
        squared_distances: (B, C).
        strengths: (B, C).
        temperature: T (B, 1).
        filled: (B, C) bool, which slots hold a vector.
    """
    # relative to the nearest vector, so that not all weights underflow; the quotients do not change
    nearest = squared_distances.detach().masked_fill(~filled, torch.inf).amin(-1, keepdim=True)
    nearest = nearest.masked_fill(nearest.isinf(), 0.0)
    exponents = ((nearest - squared_distances) / temperature).masked_fill(~filled, 0.0)
    return strengths * exponents.exp()


def normalize_weights(weights: Tensor) -> Tensor:
    """Return weights (B, C) divided by their sum; zeros if the sum is zero, as it is for an empty memory."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)
