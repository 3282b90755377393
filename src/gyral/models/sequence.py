"""A model of token sequences with one prediction per step, or one per sequence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from gyral.cells.base import RecurrentCell
from gyral.cells.initialization import orthogonal_
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.core.errors import OptionError
from gyral.data.vocabulary import PADDING_ID
from gyral.models.attention import ReadoutFactory
from gyral.nn.dropout import SequenceDropout
from gyral.nn.recurrent import Recurrent
from gyral.ops.dropout import dropout_mask


class SequenceModel(nn.Module):
    """Tokens → one-hot vectors or embeddings → recurrent stack → linear head, or the readout of a task.

    Args:
        cell: makes a cell from its input size.
        vocabulary_size: number of input tokens.
        output_size: number of predicted classes, per step or as the readout defines.
        readout: makes the module that computes logits from outputs, from the sizes of outputs and inputs and
            `output_size`. It is called like `gyral.models.attention.LastStep`. None: a linear head at each step.
        embedding_size: size of a trained embedding; None: one-hot inputs.
        tied: whether the head shares its weights with the embedding (Press and Wolf 2017).
        pooling: how the vectors of a step with several tokens are combined, "mean" or "sum".
        embedding_dropout: probability, in [0, 1), that the vector of a token is zero at all of its positions in a
            training batch (Gal and Ghahramani 2016).
        input_dropout, output_dropout: dropout probabilities, in [0, 1), of the inputs of the recurrent stack and of the
            head.
        num_layers, bidirectional, dropout, locked_dropout, weight_drop, backend: see
            `gyral.nn.recurrent.Recurrent`; `locked_dropout` also applies to inputs and outputs.
        initialization: of the embedding and of the head. "default": those of torch, N(0, 1) and uniform; if they are
            tied, uniform in ±1/√width. "orthogonal": orthogonal matrices, so that the vector of a token has norm 1 if
            there are fewer tokens than columns, as in the code of Mujika et al. (amujika/Fast-Slow-LSTM on GitHub) and
            of Dangovski et al. (TACL 2019; rdangovs/rotational-unit-of-memory, tasks/LM/main.py). Both leave the bias
            of the head and a task's readout as torch draws them.

    Raises:
        OptionError: an argument is out of bounds, or `tied` is not possible with the sizes or the readout.
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
        initialization: str = "default",
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
        if check_choice("initialization", initialization, ("default", "orthogonal")) == "orthogonal":
            with torch.no_grad():
                for layer in (self.embedding, self.head):
                    if layer is not None:
                        orthogonal_(layer.weight)

    def _tie(self) -> None:
        if self.head is None:
            raise OptionError("tied", True, "must be false, because the model has no head at each step for this task")
        shape = tuple(self.head.weight.shape)
        if self.embedding is None:
            raise OptionError("tied", True, f"needs an embedding; set embedding_size={shape[1]}")
        if self.embedding.weight.shape != shape:
            embedding = tuple(self.embedding.weight.shape)
            reason = f"the embedding is {embedding} and the head {shape}, (symbols, width), and must be equal"
            raise OptionError("tied", True, reason)
        self.head.weight = self.embedding.weight
        # With the usual N(0, 1) of an embedding, logits would have a standard deviation of √width.
        nn.init.uniform_(self.head.weight, -(shape[1] ** -0.5), shape[1] ** -0.5)

    def forward(self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Return logits, (B, T, output_size) or those of the readout, and the state after the last step.

        Args:
            tokens: (B, T) integers; or (B, T, W), steps of up to W tokens, padded with 0.
            state, lengths: see `gyral.nn.recurrent.Recurrent.forward`.
        """
        outputs, inputs, state = self.run(tokens, state, lengths)
        outputs = self.output_dropout(outputs)
        if self.head is not None:
            return self.head(outputs).transpose(0, 1), state
        assert self.readout is not None
        return self.readout(outputs, inputs, lengths), state

    def run(self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor, Any]:
        """Return the outputs (T, B, H), the inputs (T, B, X) and the last state of the recurrent stack."""
        inputs = self.input_dropout(self._vectors(tokens.transpose(0, 1)))
        outputs, state = self.recurrent(inputs, state, lengths)
        return outputs, inputs, state

    def _vectors(self, tokens: Tensor) -> Tensor:
        """Return the vectors (T, B, X) of tokens (T, B), or of tokens (T, B, W), pooled over W."""
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
        pooled = F.embedding_bag(tokens.flatten(0, 1), weight, mode=self.pooling, padding_idx=PADDING_ID)
        return pooled.view(*tokens.shape[:2], -1)

    @torch.no_grad()
    def state_size(self) -> int:
        """Return the number of recurrent state values that are carried from step to step for one sequence."""
        return sum(leaf.numel() for leaf in tree_leaves(self.recurrent.init_state(1)))
