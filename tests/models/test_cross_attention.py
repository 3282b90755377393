"""Attention to an encoded sequence against torch and its equations, and positions."""

import pytest
import torch
from torch.nn import functional as F

from gyral.core.errors import OptionError
from gyral.models.cross_attention import AdditiveAttention, MultiHeadAttention, sinusoids

MASK = torch.tensor([[True] * 5, [True, True, False, False, False]])


def test_attention_equals_torch() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(8, 6, 2).double()
    memory, queries = torch.randn(5, 2, 6).double(), torch.randn(2, 3, 8).double()
    mask = MASK
    found, scores = layer(queries, layer.project(memory), mask)
    keys, values = (
        part.transpose(0, 1).unflatten(2, (2, 4)).transpose(1, 2) for part in layer.memory(memory).chunk(2, 2)
    )
    query = layer.query(queries).unflatten(2, (2, 4)).transpose(1, 2)
    expected = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask[:, None, None])
    torch.testing.assert_close(found, layer.output(expected.transpose(1, 2).flatten(2)))
    assert scores.shape == (2, 2, 3, 5)
    with pytest.raises(OptionError, match="attention_heads=3: must divide embedding_size, 8"):
        MultiHeadAttention(8, 6, 3)


def test_positions_have_different_vectors() -> None:
    vectors = sinusoids(torch.arange(500), 7)
    assert vectors.shape == (500, 7)
    assert torch.cdist(vectors, vectors).fill_diagonal_(1.0).min() > 1e-3
    assert vectors[0].tolist() == [0, 0, 0, 0, 1, 1, 1]


@torch.no_grad()
def test_additive_attention_by_hand() -> None:
    torch.manual_seed(0)
    layer = AdditiveAttention(8, 6).double()
    memory, queries = torch.randn(5, 2, 6).double(), torch.randn(2, 3, 8).double()
    found, scores = layer(queries, layer.project(memory), MASK)
    assert scores.shape == (2, 1, 3, 5)
    for row in range(2):
        read = memory[MASK[row], row]
        for time in range(3):
            energies = layer.score(torch.tanh(layer.memory(read) + layer.query(queries[row, time]))).squeeze(1)
            torch.testing.assert_close(scores[row, 0, time][MASK[row]], energies)
            torch.testing.assert_close(found[row, time], layer.output(energies.softmax(dim=0) @ read))
    assert scores[1, :, :, 2:].isneginf().all()
