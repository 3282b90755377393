"""Attention to an encoded sequence, with several heads or additive, and sinusoidal positions."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gyral.core.errors import OptionError

LONGEST_WAVE = 10_000.0


class KeysAndValues(NamedTuple):
    """Keys and values (B, heads, S, size of a head) of B encoded sequences of S steps."""

    keys: Tensor
    values: Tensor


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention with several heads (Vaswani et al., "Attention is all you need", NIPS 2017).

        a_h = softmax(q_h K_hᵀ / √d_h),   output = W [a_1 V_1; …; a_H V_H] + b

    Keys and values are computed once per encoded sequence, so that a step of decoding costs no projection of it.
    Initialization: matrices Xavier-uniform, biases zero.

    Args:
        width: D, size of queries and outputs.
        memory_size: size of the vectors of the encoded sequence.
        heads: number of heads, which divides D.

    Raises:
        OptionError: the number of heads does not divide D.
    """

    def __init__(self, width: int, memory_size: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise OptionError("attention_heads", heads, f"must divide embedding_size, {width}")
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(memory_size, 2 * width)
        self.output = nn.Linear(width, width)
        for layer in (self.query, self.memory, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def project(self, memory: Tensor) -> KeysAndValues:
        """Return keys and values for an encoded sequence (S, B, memory_size)."""
        keys, values = (
            part.unflatten(2, (self.heads, -1)).permute(1, 2, 0, 3) for part in self.memory(memory).chunk(2, dim=2)
        )
        return KeysAndValues(keys, values)

    def forward(self, queries: Tensor, memory: KeysAndValues, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend to the encoded sequences.

        Args:
            queries: (B, T, D).
            memory: keys and values.
            mask: (B, S) True at steps of the sequence, False at padding.

        Returns:
            The outputs (B, T, D), and the scores (B, heads, T, S) before the softmax, −∞ at padding.
        """
        projected = self.query(queries).unflatten(2, (self.heads, -1)).transpose(1, 2)
        scores = projected @ memory.keys.transpose(2, 3) / math.sqrt(projected.shape[3])
        scores = scores.masked_fill(~mask[:, None, None, :], -math.inf)
        found = scores.softmax(dim=-1) @ memory.values
        return self.output(found.transpose(1, 2).flatten(2)), scores


class AdditiveAttention(nn.Module):
    """Additive attention (Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
    translate", ICLR 2015).

        e_i = vᵀ tanh(W_h h_i + W_s s + b),   a = softmax(e),   output = W Σ_i a_i h_i + b'

    Called as `MultiHeadAttention`, with one head. A query is the vector of the step itself; in the paper it is the
    state before the step. Initialization: matrices Xavier-uniform, biases zero.

    Args:
        width: D, size of s, of e's hidden layer and of the outputs.
        memory_size: size of h_i.
    """

    def __init__(self, width: int, memory_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(memory_size, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        self.output = nn.Linear(memory_size, width)
        for layer in (self.query, self.memory, self.score, self.output):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def project(self, memory: Tensor) -> KeysAndValues:
        """Return W_h h and h for an encoded sequence (S, B, memory_size)."""
        return KeysAndValues(
            *(part.transpose(0, 1).contiguous().unsqueeze(1) for part in (self.memory(memory), memory))
        )

    def forward(self, queries: Tensor, memory: KeysAndValues, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend to the encoded sequences; see `MultiHeadAttention.forward`."""
        energies = self.query(queries).unsqueeze(2) + memory.keys  # (B, T, S, D)
        # In place, so that only the tanh is saved for backward: this is the largest tensor of the network.
        scores = self.score(energies.tanh_()).squeeze(3).masked_fill(~mask.unsqueeze(1), -math.inf)
        found = scores.softmax(dim=-1) @ memory.values.squeeze(1)
        return self.output(found), scores.unsqueeze(1)


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """Return vectors (…, width) of positions (…): sines and cosines of wavelengths from 2π to 20,000 π.

    As in Vaswani et al. (2017), with all sines before all cosines.
    """
    half = (width + 1) // 2
    exponents = torch.arange(half, device=positions.device) / max(1, half - 1)
    angles = positions.unsqueeze(-1) * LONGEST_WAVE ** (-exponents)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)[..., :width]
