"""A model of sequences of tokens or real vectors with one prediction per step, or one per sequence."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

from gyral.cells.base import RecurrentCell
from gyral.cells.initialization import orthogonal_
from gyral.cells.inputs import StepInputs
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.core.errors import OptionError
from gyral.data.vocabulary import PADDING_ID
from gyral.models.attention import ReadoutFactory
from gyral.nn.dropout import SequenceDropout
from gyral.nn.recurrent import Recurrent
from gyral.ops.dropout import dropout_mask

log = logging.getLogger(__name__)
UNIFORM = 0.1  # bound of the initial weights of embedding and head with initialization="uniform"


class SequenceModel(nn.Module):
    """Inputs → recurrent stack → linear head, or the readout of a task.

    Tokens enter the recurrent stack as one-hot vectors or embeddings, real inputs as they are.

    Args:
        cell: makes a cell from its input size.
        vocabulary_size: number of input tokens; None: real inputs.
        output_size: number of outputs, such as logits of classes, per step or as the readout defines.
        input_size: X, size of real inputs; None: tokens.
        readout: makes the module that computes the final outputs from those of the recurrent stack, from the sizes of
            outputs and inputs and `output_size`. It is called like `gyral.models.attention.LastStep`. None: a linear
            head at each step.
        embedding_size: size of a trained embedding; None: one-hot inputs. This option and the next three are for
            tokens.
        tied: whether the head shares its weights with the embedding (Press and Wolf 2017).
        pooling: how the vectors of a step with several tokens are combined, "mean" or "sum".
        embedding_dropout: probability, in [0, 1), that the vector of a token is zero at all of its positions in a
            training batch (Gal and Ghahramani 2016).
        input_dropout, output_dropout: dropout probabilities, in [0, 1), of the inputs of the recurrent stack and of the
            head.
        num_layers, bidirectional, dropout, locked_dropout, weight_drop, block, block_size, backend: see
            `gyral.nn.recurrent.Recurrent`; `locked_dropout` also applies to inputs and outputs.
        layer_sizes: hidden size of each layer, such as [1150, 1150, 400]; None: `num_layers` layers of the hidden size
            of `cell`.
        initialization: of the embedding and of the head. "default": as in torch, N(0, 1) and uniform; if they are
            tied, uniform in ±1/√width. "uniform": uniform in ±0.1, with a zero bias of the head, as in the code of
            AWD-LSTM (salesforce/awd-lstm-lm on GitHub). "orthogonal": orthogonal matrices, so that the vector of a
            token has norm 1 if there are fewer tokens than columns, as in the code of Mujika et al.
            (amujika/Fast-Slow-LSTM on GitHub) and of Dangovski et al. (TACL 2019; rdangovs/rotational-unit-of-memory,
            tasks/LM/main.py). A task's readout always keeps torch's initialization, and so does the bias of the head
            unless this is "uniform".

    Raises:
        OptionError: an argument is out of bounds, `tied` is not possible with the sizes or the readout, or an option
            for tokens is set for real inputs.
    """

    small: ClassVar = {"num_layers": 1, "layer_sizes": None, "cell": {"hidden_size": 16}}

    def __init__(
        self,
        cell: Callable[[int], RecurrentCell],
        vocabulary_size: int | None,
        output_size: int,
        *,
        input_size: int | None = None,
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
        layer_sizes: Sequence[int] | None = None,
        initialization: str = "default",
        block: str | None = None,
        block_size: int | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if input_size is None:
            self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size)
        else:
            check_integer("input_size", input_size)
            _refuse_token_options(vocabulary_size, embedding_size, tied, embedding_dropout)
        self.input_size = input_size
        check_integer("output_size", output_size)
        self.embedding: nn.Embedding | None = None
        if embedding_size is not None:
            self.embedding = nn.Embedding(self.vocabulary_size, check_integer("embedding_size", embedding_size))
        width = input_size or embedding_size or self.vocabulary_size  # of what enters the recurrent stack
        self.pooling = check_choice("pooling", pooling, ("mean", "sum"))
        self.embedding_dropout = check_real("embedding_dropout", embedding_dropout, minimum=0, below=1)
        check_real("input_dropout", input_dropout, minimum=0, below=1)
        check_real("output_dropout", output_dropout, minimum=0, below=1)
        self.input_dropout = SequenceDropout(input_dropout, locked_dropout)
        cells = cell if layer_sizes is None else _cells_of_sizes(cell, layer_sizes, num_layers)
        self.recurrent = Recurrent(
            cells,
            width,
            num_layers if layer_sizes is None else len(layer_sizes),
            bidirectional,
            dropout,
            backend=backend,
            locked_dropout=locked_dropout,
            weight_drop=weight_drop,
            block=block,
            block_size=block_size,
        )
        self.recurrent.returns_copies = False  # nothing below overwrites them
        if dropout > 0 and self.recurrent.num_layers == 1 and block is None:
            log.warning("model.dropout=%s has no effect: it is between layers, and there is one", dropout)
        self.output_dropout = SequenceDropout(output_dropout, locked_dropout)
        hidden = self.recurrent.output_size
        self.head = nn.Linear(hidden, output_size) if readout is None else None
        self.readout = None if readout is None else readout(hidden, width, output_size)
        if check_boolean("tied", tied):
            self._tie()
        self._initialize(initialization)

    @torch.no_grad()
    def _initialize(self, initialization: str) -> None:
        """Draw the weights of embedding and head, unless they keep torch's initialization."""
        if check_choice("initialization", initialization, ("default", "uniform", "orthogonal")) == "default":
            return
        for layer in (self.embedding, self.head):
            if layer is not None and initialization == "orthogonal":
                orthogonal_(layer.weight)
            elif layer is not None:
                nn.init.uniform_(layer.weight, -UNIFORM, UNIFORM)
        if self.head is not None and initialization == "uniform":
            nn.init.zeros_(self.head.bias)

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

    def forward(
        self, inputs: Any, state: Any = None, lengths: Tensor | None = None, steps: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Return the outputs, (B, T, output_size) or as the readout defines, and the state after the last step.

        Args:
            inputs: tokens, (B, T) integers; or (B, T, W), steps of up to W tokens, padded with 0; or real (B, T, X).
                Or `StepInputs` such as `gyral.MaskedInputs`, with these as values and batch-first leaves.
            state, lengths: see `gyral.nn.recurrent.Recurrent.forward`.
            steps: (B, K) integers in [0, T), the steps at which the head is applied; the outputs are then
                (B, K, output_size). None: all steps. Only without a readout.
        """
        hidden, vectors, state = self.run(inputs, state, lengths)
        if steps is not None:
            hidden = hidden.gather(0, steps.T.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
        return self.read_out(self.output_dropout(hidden), vectors, lengths), state

    def run(self, inputs: Any, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor, Any]:
        """Return the outputs (T, B, H), the inputs (T, B, X) and the last state of the recurrent stack."""
        values = inputs.values if isinstance(inputs, StepInputs) else inputs
        sequence = vectors = self.input_dropout(self._vectors(values.transpose(0, 1)))
        if isinstance(inputs, StepInputs):
            sequence = tree_map_only(Tensor, lambda leaf: leaf.transpose(0, 1), inputs)._replace(values=vectors)
        outputs, state = self.recurrent(sequence, state, lengths)
        return outputs, vectors, state

    def step(self, inputs: Any, state: Any) -> tuple[Tensor, Any]:
        """Return the outputs (B, output_size) of one step in evaluation, and the state after it.

        Args:
            inputs: tokens, (B,) integers; or real (B, X). Or `StepInputs` such as `gyral.MaskedInputs`, with these as
                values.
            state: the state before it, see `gyral.nn.recurrent.Recurrent.step`.
        """
        has_parts = isinstance(inputs, StepInputs)
        vectors = self._vectors(inputs.values if has_parts else inputs)
        hidden, state = self.recurrent.step(inputs._replace(values=vectors) if has_parts else vectors, state)
        if self.head is not None:
            return self.head(hidden), state
        return self.read_out(hidden.unsqueeze(0), vectors.unsqueeze(0)), state

    def read_out(self, hidden: Tensor, vectors: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the outputs of the model for the outputs and inputs of the recurrent stack that `run` returns."""
        if self.head is not None:
            return self.head(hidden).transpose(0, 1)
        assert self.readout is not None
        return self.readout(hidden, vectors, lengths)

    def _vectors(self, inputs: Tensor) -> Tensor:
        """Return the vectors (…, X) of tokens (T, B) or (B,), or of tokens (T, B, W), pooled over W; or real inputs."""
        if self.input_size is not None:
            return inputs.to(next(self.parameters()).dtype)
        dropping = self.training and self.embedding_dropout > 0
        weight = next(self.parameters()) if self.embedding is None else self.embedding.weight
        kept = dropout_mask(weight.new_empty(self.vocabulary_size, 1), self.embedding_dropout) if dropping else None
        if inputs.dim() < 3:
            if self.embedding is None:
                vectors = F.one_hot(inputs, self.vocabulary_size).to(weight.dtype)
            else:
                vectors = self.embedding(inputs)
            return vectors if kept is None else vectors * kept[inputs]
        if self.embedding is None:
            weight = torch.eye(self.vocabulary_size, dtype=weight.dtype, device=weight.device)
        if kept is not None:
            weight = weight * kept
        pooled = F.embedding_bag(inputs.flatten(0, 1), weight, mode=self.pooling, padding_idx=PADDING_ID)
        return pooled.view(*inputs.shape[:2], -1)

    @torch.no_grad()
    def state_size(self) -> int:
        """Return the number of recurrent state values that are carried from step to step for one sequence."""
        return sum(leaf.numel() for leaf in tree_leaves(self.recurrent.init_state(1)))


def _cells_of_sizes(
    cell: Callable[..., RecurrentCell], sizes: Sequence[int], num_layers: int
) -> list[Callable[[int], RecurrentCell]]:
    """Return a constructor of the cell of each layer, from one of a cell that has a hidden size."""
    found = [check_integer("layer_sizes", size) for size in sizes]
    if num_layers not in (1, len(found)):
        raise OptionError("num_layers", num_layers, f"must be {len(found)}, the number of layer_sizes, or 1")
    if not found:
        raise OptionError("layer_sizes", sizes, "must have a size for each layer, such as [1150, 1150, 400]")
    return [partial(cell, hidden_size=size) for size in found]


def _refuse_token_options(
    vocabulary_size: int | None, embedding_size: int | None, tied: bool, embedding_dropout: float
) -> None:
    """Raise `OptionError` if an option for tokens is set for a model of real inputs."""
    options = (
        ("vocabulary_size", vocabulary_size, None),
        ("embedding_size", embedding_size, None),
        ("tied", tied, False),
        ("embedding_dropout", embedding_dropout, 0),
    )
    for option, value, required in options:
        if value != required:
            shown = "null" if required is None else str(required).lower()
            raise OptionError(option, value, f"must be {shown}: the inputs are real vectors, not tokens")
