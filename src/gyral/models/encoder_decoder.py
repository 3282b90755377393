"""Encoder and decoder of residual blocks with any cells, convolutions or self-attention; the decoder attends."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from gyral.cells.base import RecurrentCell
from gyral.core.checks import check_boolean, check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.models.cross_attention import AdditiveAttention, KeysAndValues, MultiHeadAttention, sinusoids
from gyral.nn.block import FeedForward, PreNormStack
from gyral.nn.dropout import SequenceDropout
from gyral.nn.recurrent import Recurrent

# Makes a cell, or a layer as in `gyral.models.self_attention`, from its input size and other options.
LayerFactory = Callable[..., Any]


class Memory(NamedTuple):
    """B encoded sequences.

    Attributes:
        layers: keys and values of each layer of the decoder.
        mask: (B, S) True at tokens, False at padding.
    """

    layers: tuple[KeysAndValues, ...]
    mask: Tensor


class DecoderState(NamedTuple):
    """State of a decoder with R rows: the state of each layer, and the number (R,) of tokens so far."""

    cells: tuple[Any, ...]
    position: Tensor


class CenteredEncoder(nn.Module):
    """Residual blocks of layers that read ahead as far as back, such as convolutions with centered windows.

    Args:
        factories: makes each layer.
        width: D, size of inputs and outputs.
        dropout: probability of dropout of the outputs of each part of a block.

    Raises:
        OptionError: a layer cannot read ahead, or its kernel_size is even.
    """

    def __init__(self, factories: Sequence[LayerFactory], width: int, dropout: float) -> None:
        super().__init__()
        self.cells = nn.ModuleList(make(width) for make in factories)
        for cell in self.cells:
            if not hasattr(cell, "centered"):
                reason = f"must be false for {type(cell).__name__}, which reads in two directions instead"
                raise OptionError("centered", True, reason)
            cell.check_centered()  # type: ignore[operator]
        sizes = [int(cell.output_size) for cell in self.cells]  # type: ignore[arg-type]
        self.blocks = PreNormStack(width, width, sizes, SequenceDropout(dropout))
        self.output_size = width

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs (S, B, D) for vectors (S, B, D), zero beyond the lengths."""
        for layer, cell in enumerate(self.cells):
            outputs = cell.centered(self.blocks.normalize(layer, vectors), lengths)  # type: ignore[operator]
            vectors = self.blocks.add(layer, vectors, outputs)
        return self.blocks.finish(vectors, lengths)


class DecoderLayer(nn.Module):
    """A block with three parts: a cell or a layer of attention, attention to the encoder, and a feed-forward network.

        y = x + W cell(LN(x)) + b,   z = y + attention(LN(y)),   outputs z + W_2 ReLU(W_1 LN(z) + b_1) + b_2

    Args:
        make: makes the cell or the layer.
        width: D.
        attention: the attention to the encoder.
        dropout: probability of dropout of the outputs of each part.
        backend: see `gyral.nn.recurrent.Recurrent`.
    """

    def __init__(
        self, make: LayerFactory, width: int, attention: Callable[[], nn.Module], dropout: float, backend: str
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        layer = make(width)
        self.recurrent = Recurrent(lambda _: layer, width, backend=backend) if _is_cell(layer) else layer
        self.output = nn.Linear(self.recurrent.output_size, width)
        self.attention_norm = nn.LayerNorm(width)
        self.attention: Any = attention()
        self.dropout = SequenceDropout(dropout)
        self.feed_forward = FeedForward(width, self.dropout)

    def forward(self, stream: Tensor, state: Any, memory: KeysAndValues, mask: Tensor) -> tuple[Tensor, Any, Tensor]:
        """Run over tokens (T, R, D); R / B consecutive rows per encoded sequence.

        Returns:
            The outputs (T, R, D), the state after the last token, and the scores (B, heads, T · R / B, S).
        """
        outputs, (state,) = self.recurrent(self.norm(stream), None if state is None else (state,))
        stream = stream + self.dropout(self.output(outputs))
        queries = self.attention_norm(stream).transpose(0, 1)
        sequences = len(mask)  # in a search, each sequence has several rows, and each row is a query
        found, scores = self.attention(queries.reshape(sequences, -1, queries.shape[2]), memory, mask)
        found = found.view(queries.shape).transpose(0, 1)
        return self.feed_forward(stream + self.dropout(found)), state, scores


class EncoderDecoder(nn.Module):
    """Encoder and decoder of residual blocks, as for light and dynamic convolutions (Wu et al., ICLR 2019).

    Each layer of the encoder is a residual block with a cell and a feed-forward network; the layers of the decoder also
    attend to the outputs of the last layer of the encoder (`DecoderLayer`). Encoder and decoder share the embedding E:
    tokens enter as embeddings times √D, plus sinusoidal positions, and leave as logits E LN(z) + b. Normalization
    precedes each part of a block; in the code of the paper it follows each part by default.

    Initialization: E normal with standard deviation 1/√D, b zero; other weights as in torch or their classes.

    Args:
        encoder: makes the cell of a layer of the encoder, or a layer of `gyral.models.self_attention`, from its input
            size.
        decoder: the same for the decoder.
        vocabulary_size: V.
        output_size: number of classes that a task passes to every model; it is V.
        embedding_size: D, width of embedding and blocks.
        encoder_kernels, decoder_kernels: kernel_size of each layer, such as [3, 7, 15, 31]; None: `num_layers` layers
            as they are.
        num_layers: number of layers of encoder and decoder without a list of kernel sizes.
        centered: whether the layers of the encoder read ahead as far as back, which requires convolutions or
            self-attention. False: any cell, in two directions.
        attention: attention to the encoder: "multi_head", as in Vaswani et al. (2017), or "additive", as in Bahdanau et
            al. (2015).
        attention_heads: number of heads of the multi-head attention, which divides D.
        dropout: probability of dropout of the embedded tokens and of the outputs of each part of a block.
        backend: backend of the cells (`gyral.nn.recurrent.Recurrent`).

    Raises:
        OptionError: an option is out of bounds, or does not fit the cells.
    """

    small: ClassVar = {
        "num_layers": 1,
        "encoder_kernels": None,
        "decoder_kernels": None,
        "embedding_size": 16,
        "encoder": {"hidden_size": 16},
        "decoder": {"hidden_size": 16},
    }

    def __init__(
        self,
        encoder: LayerFactory,
        decoder: LayerFactory,
        vocabulary_size: int,
        output_size: int | None = None,
        *,
        embedding_size: int = 256,
        encoder_kernels: Sequence[int] | None = None,
        decoder_kernels: Sequence[int] | None = None,
        num_layers: int = 2,
        centered: bool = True,
        attention: str = "multi_head",
        attention_heads: int = 4,
        dropout: float = 0.1,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size)
        self.width = width = check_integer("embedding_size", embedding_size)
        check_integer("attention_heads", attention_heads)
        check_integer("num_layers", num_layers)
        self.embedding = nn.Embedding(vocabulary_size, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        factories = _layers("encoder_kernels", encoder, encoder_kernels, num_layers)
        self.encoder: CenteredEncoder | Recurrent
        if check_boolean("centered", centered):
            self.encoder = CenteredEncoder(factories, width, dropout)
        else:
            _check_cell(factories[0], width)
            self.encoder = Recurrent(factories, width, len(factories), True, dropout, backend=backend, block="prenorm")
        attend: Callable[[], nn.Module] = partial(AdditiveAttention, width, self.encoder.output_size)
        if check_choice("attention", attention, ("multi_head", "additive")) == "multi_head":
            attend = partial(MultiHeadAttention, width, self.encoder.output_size, attention_heads)
        self.layers = nn.ModuleList(
            DecoderLayer(make, width, attend, dropout, backend)
            for make in _layers("decoder_kernels", decoder, decoder_kernels, num_layers)
        )
        self.norm = nn.LayerNorm(width)
        self.dropout = SequenceDropout(dropout)

    def _decoder_layers(self) -> list[DecoderLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the vectors (…, D) of tokens (…) at positions (…)."""
        vectors = self.embedding(tokens) * math.sqrt(self.width)
        return self.dropout(vectors + sinusoids(positions, self.width).to(vectors.dtype))

    def read(self, tokens: Tensor, lengths: Tensor) -> Memory:
        """Return encoded sequences: tokens (B, S), and lengths (B,) in [1, S]."""
        tokens, lengths = tokens.T, lengths.to(tokens.device)
        positions = torch.arange(len(tokens), device=tokens.device)
        vectors = self._embed(tokens, positions.unsqueeze(1))
        if isinstance(self.encoder, CenteredEncoder):
            outputs = self.encoder(vectors, lengths)
        else:
            outputs, _ = self.encoder(vectors, lengths=lengths)
        layers = tuple(layer.attention.project(outputs) for layer in self._decoder_layers())
        return Memory(layers, positions < lengths.unsqueeze(1))

    def decode(self, memory: Memory, tokens: Tensor, state: DecoderState) -> tuple[Tensor, Tensor, DecoderState]:
        """Run the decoder over tokens (T, R); R / B consecutive rows per encoded sequence.

        Returns:
            LN(z) (T, R, D), the attention scores (B, heads, T · R / B, S) of the last layer, the new state.
        """
        positions = state.position + torch.arange(len(tokens), device=tokens.device).unsqueeze(1)
        stream = self._embed(tokens, positions)
        cells = []
        scores = stream
        for layer, keys, cell in zip(self._decoder_layers(), memory.layers, state.cells, strict=True):
            stream, new, scores = layer(stream, cell, keys, memory.mask)
            cells.append(new)
        return self.norm(stream), scores, DecoderState(tuple(cells), state.position + len(tokens))

    def logits(self, found: Tensor) -> Tensor:
        """Return the logits (…, V) of the tokens that follow, for LN(z) (…, D)."""
        return F.linear(found, self.embedding.weight, self.bias)

    def begin(self, rows: int) -> DecoderState:
        """Return the initial state of the decoder."""
        cells = tuple(layer.recurrent.init_state(rows)[0] for layer in self._decoder_layers())
        return DecoderState(cells, torch.zeros(rows, dtype=torch.int64, device=self.bias.device))

    @torch.no_grad()
    def state_size(self) -> int:
        """Return the number of state values that the cells carry from step to step per sequence.

        Layers of the encoder that read ahead carry no state. Keys and values of earlier tokens, whose number grows, do
        not count.
        """
        states: list[Any] = [self.begin(1).cells]
        if isinstance(self.encoder, Recurrent):
            states.append(self.encoder.init_state(1))
        return sum(leaf.numel() for leaf in tree_leaves(states))


def _is_cell(layer: nn.Module) -> bool:
    return isinstance(layer, RecurrentCell)


def _check_cell(make: LayerFactory, width: int) -> None:
    with torch.random.fork_rng(devices=()):  # this layer is only built for its type
        layer = make(width)
    if not _is_cell(layer):
        reason = f"must be true for {type(layer).__name__}, which reads in all directions at once"
        raise OptionError("centered", False, reason)


def _layers(option: str, make: LayerFactory, kernels: Sequence[int] | None, num_layers: int) -> list[LayerFactory]:
    """Return the factory of each layer."""
    if kernels is None:
        return [make] * num_layers
    if not kernels:
        raise OptionError(option, kernels, "must have a kernel size for each layer, such as [3, 7, 15]; or null")

    def make_with(kernel_size: int, input_size: int) -> nn.Module:
        try:
            layer: nn.Module = make(input_size, kernel_size=kernel_size)
        except TypeError as error:
            if isinstance(error, OptionError):
                raise
            raise OptionError(option, kernels, "must be null, because the cell has no kernel_size") from error
        return layer

    return [partial(make_with, check_integer(option, size, minimum=2)) for size in kernels]
