"""Sequences in, one prediction a step out."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from src.cells.base import RecurrentCell
from src.checks import OptionError, check_boolean, check_integer, check_real
from src.models.recurrent import Recurrent
from src.ops.noise import SequenceDropout, dropout_mask


class SequenceModel(nn.Module):
    """Tokens → one-hot vectors or embeddings → recurrent stack → linear head.

    Args:
        cell: makes a cell from its input size.
        vocabulary_size: number of input tokens.
        output_size: number of classes predicted at each step.
        embedding_size: width of a trained embedding; None for one-hot inputs.
        tied: the head's weights are the embedding's (Press and Wolf 2017).
        embedding_dropout: probability, in [0, 1), that a token's vector is zero in training, wherever the token stands
            in the batch (Gal and Ghahramani 2016).
        input_dropout, output_dropout: probabilities, in [0, 1), on what enters the recurrent stack and the head.
        num_layers, bidirectional, dropout, locked_dropout, weight_drop, backend: of
            `src.models.recurrent.Recurrent`; `locked_dropout` holds for inputs and outputs, too.

    Raises:
        OptionError: an argument out of bounds; `tied` where the sizes do not allow it.
    """

    def __init__(
        self,
        cell: Callable[[int], RecurrentCell],
        vocabulary_size: int,
        output_size: int,
        *,
        embedding_size: int | None = None,
        tied: bool = False,
        embedding_dropout: float = 0.0,
        input_dropout: float = 0.0,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        output_dropout: float = 0.0,
        locked_dropout: bool = False,
        weight_drop: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size)
        check_integer("output_size", output_size)
        self.embedding: nn.Embedding | None = None
        if embedding_size is not None:
            self.embedding = nn.Embedding(vocabulary_size, check_integer("embedding_size", embedding_size))
        self.embedding_dropout = check_real("embedding_dropout", embedding_dropout, minimum=0, below=1)
        check_real("input_dropout", input_dropout, minimum=0, below=1)
        check_real("output_dropout", output_dropout, minimum=0, below=1)
        self.input_dropout = SequenceDropout(input_dropout, locked_dropout)
        self.recurrent = Recurrent(
            cell,
            embedding_size or vocabulary_size,
            num_layers,
            bidirectional,
            dropout,
            backend=backend,
            locked_dropout=locked_dropout,
            weight_drop=weight_drop,
        )
        self.output_dropout = SequenceDropout(output_dropout, locked_dropout)
        self.head = nn.Linear(self.recurrent.output_size, output_size)
        if check_boolean("tied", tied):
            self._tie()

    def _tie(self) -> None:
        shape = tuple(self.head.weight.shape)
        if self.embedding is None:
            raise OptionError(f"tied=True: needs an embedding; set embedding_size={shape[1]}")
        if self.embedding.weight.shape != shape:
            raise OptionError(
                f"tied=True: the embedding is {tuple(self.embedding.weight.shape)} and the head {shape},"
                " (symbols, width), and must be equal"
            )
        self.head.weight = self.embedding.weight
        # an embedding's own ±1 would make logits of √width
        nn.init.uniform_(self.head.weight, -(shape[1] ** -0.5), shape[1] ** -0.5)

    def forward(self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Predict from tokens (B, T), integers: logits (B, T, output_size) and the state after the last step."""
        time_major = tokens.transpose(0, 1)
        if self.embedding is None:
            dtype = self.head.weight.dtype
            inputs = F.one_hot(time_major, self.vocabulary_size).to(dtype)
        else:
            inputs = self.embedding(time_major)
        if self.training and self.embedding_dropout > 0:
            inputs = (
                inputs * dropout_mask(inputs.new_empty(self.vocabulary_size, 1), self.embedding_dropout)[time_major]
            )
        outputs, state = self.recurrent(self.input_dropout(inputs), state, lengths)
        return self.head(self.output_dropout(outputs)).transpose(0, 1), state

    @torch.no_grad()
    def state_size(self) -> int:
        """Number of recurrent state values carried from step to step for one sequence."""
        return sum(leaf.numel() for leaf in tree_leaves(self.recurrent.init_state(1)))
