"""Sequences in, one prediction a step out."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from src.cells.base import RecurrentCell
from src.checks import check_integer
from src.models.recurrent import Recurrent


class SequenceModel(nn.Module):
    """Tokens → one-hot vectors or embeddings → recurrent stack → linear head.

    Args:
        cell: makes a cell from its input size.
        vocabulary_size: number of input tokens.
        output_size: number of classes predicted at each step.
        embedding_size: width of a trained embedding; None for one-hot inputs.
        num_layers, bidirectional, dropout, backend: of `src.models.recurrent.Recurrent`.

    Raises:
        OptionError: an argument out of bounds.
    """

    def __init__(
        self,
        cell: Callable[[int], RecurrentCell],
        vocabulary_size: int,
        output_size: int,
        *,
        embedding_size: int | None = None,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size)
        check_integer("output_size", output_size)
        self.embedding: nn.Embedding | None = None
        if embedding_size is not None:
            self.embedding = nn.Embedding(vocabulary_size, check_integer("embedding_size", embedding_size))
        self.recurrent = Recurrent(
            cell, embedding_size or vocabulary_size, num_layers, bidirectional, dropout, backend=backend
        )
        self.head = nn.Linear(self.recurrent.output_size, output_size)

    def forward(self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Predict from tokens (B, T), integers: logits (B, T, output_size) and the state after the last step."""
        time_major = tokens.transpose(0, 1)
        if self.embedding is None:
            dtype = self.head.weight.dtype
            inputs = F.one_hot(time_major, self.vocabulary_size).to(dtype)
        else:
            inputs = self.embedding(time_major)
        outputs, state = self.recurrent(inputs, state, lengths)
        return self.head(outputs).transpose(0, 1), state

    @torch.no_grad()
    def state_size(self) -> int:
        """Number of recurrent state values carried from step to step for one sequence."""
        return sum(leaf.numel() for leaf in tree_leaves(self.recurrent.init_state(1)))
