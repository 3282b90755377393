"""Sequences in, one prediction a step out, or one a sequence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from gyral.cells.base import RecurrentCell
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.core.errors import OptionError
from gyral.models.attention import ReadoutFactory
from gyral.nn.dropout import SequenceDropout
from gyral.nn.recurrent import Recurrent
from gyral.ops.dropout import dropout_mask

PADDING = 0  # the token that fills up a step of several tokens


class SequenceModel(nn.Module):
    """Tokens → one-hot vectors or embeddings → recurrent stack → linear head, or the readout that a task asks for.

    Args:
        cell: makes a cell from its input size.
        vocabulary_size: number of input tokens.
        output_size: number of classes predicted, at each step unless a readout does otherwise.
        readout: makes what turns outputs into logits, from the width of outputs, that of inputs and `output_size`; it
            is called as `gyral.models.attention.LastStep` is. None for the linear head.
        embedding_size: width of a trained embedding; None for one-hot inputs.
        tied: the head's weights are the embedding's (Press and Wolf 2017).
        pooling: what a step of several tokens has of their vectors, "mean" or "sum".
        embedding_dropout: probability, in [0, 1), that a token's vector is zero in training, wherever the token stands
            in the batch (Gal and Ghahramani 2016).
        input_dropout, output_dropout: probabilities, in [0, 1), on what enters the recurrent stack and the head.
        num_layers, bidirectional, dropout, locked_dropout, weight_drop, backend: of
            `gyral.nn.recurrent.Recurrent`; `locked_dropout` holds for inputs and outputs, too.

    Raises:
        OptionError: an argument out of bounds; `tied` where the sizes or a readout do not allow it.
    """

    def __init__(
        self,
        cell: Callable[[int], RecurrentCell],
        vocabulary_size: int,
        output_size: int,
        *,
        readout: ReadoutFactory | None = None,
        embedding_size: int | None = None,
        tied: bool = False,
        pooling: str = "mean",
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
        self.pooling = check_choice("pooling", pooling, ("mean", "sum"))
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
        width = self.recurrent.output_size
        self.head = nn.Linear(width, output_size) if readout is None else None
        self.readout = None if readout is None else readout(width, embedding_size or vocabulary_size, output_size)
        if check_boolean("tied", tied):
            self._tie()

    def _tie(self) -> None:
        if self.head is None:
            raise OptionError("tied=True: this task's model has no head at every step; must be false")
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
        """Return logits, (B, T, output_size) or as the readout makes them, and the state after the last step.

        Args:
            tokens: (B, T) integers; or (B, T, W), steps of up to W tokens filled up with 0.
            state, lengths: of `gyral.nn.recurrent.Recurrent.forward`.
        """
        outputs, inputs, state = self.run(tokens, state, lengths)
        outputs = self.output_dropout(outputs)
        if self.head is not None:
            return self.head(outputs).transpose(0, 1), state
        assert self.readout is not None
        return self.readout(outputs, inputs, lengths), state

    def run(self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor, Any]:
        """Return outputs (T, B, H) and inputs (T, B, X) of the recurrent stack, and its state after the last step."""
        inputs = self.input_dropout(self._vectors(tokens.transpose(0, 1)))
        outputs, state = self.recurrent(inputs, state, lengths)
        return outputs, inputs, state

    def _vectors(self, tokens: Tensor) -> Tensor:
        """Return the vectors (T, B, X) of tokens (T, B), or those of tokens (T, B, W), pooled over W."""
        dropping = self.training and self.embedding_dropout > 0
        weight = next(self.parameters()) if self.embedding is None else self.embedding.weight
        kept = dropout_mask(weight.new_empty(self.vocabulary_size, 1), self.embedding_dropout) if dropping else None
        if tokens.dim() == 2:
            if self.embedding is None:
                vectors = F.one_hot(tokens, self.vocabulary_size).to(weight.dtype)
            else:
                vectors = self.embedding(tokens)
            return vectors if kept is None else vectors * kept[tokens]
        if self.embedding is None:
            weight = torch.eye(self.vocabulary_size, dtype=weight.dtype, device=weight.device)
        if kept is not None:
            weight = weight * kept
        pooled = F.embedding_bag(tokens.flatten(0, 1), weight, mode=self.pooling, padding_idx=PADDING)
        return pooled.view(*tokens.shape[:2], -1)

    @torch.no_grad()
    def state_size(self) -> int:
        """Number of recurrent state values carried from step to step for one sequence."""
        return sum(leaf.numel() for leaf in tree_leaves(self.recurrent.init_state(1)))
